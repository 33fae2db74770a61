/* For loops that wait for another thread or device. */
#ifndef HEARTH_WORKER_CPU_PAUSE_H
#define HEARTH_WORKER_CPU_PAUSE_H

static inline void
cpu_pause(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

#endif
