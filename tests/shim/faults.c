/* Preloaded into the processes of a stack, it makes the system calls of the loader and the pinner
 * go wrong as HEARTH_FAULTS says: words, some with a number, with commas between: "short,eio=4096".
 * The first time a fault is put in, its name is added to the file HEARTH_FAULTS_SEEN. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define POISON 0xa5

enum fault {
	FAULT_SHORT,         /* a third of every read is missing, its place spoiled */
	FAULT_EINTR,         /* every other read of a thread is interrupted */
	FAULT_EINVAL,        /* direct reads, though the file could be opened for them */
	FAULT_EIO,           /* reads of this offset */
	FAULT_ENDS,          /* reads find the end of the file at this offset */
	FAULT_TRUNCATE,      /* the first read behind the header cuts the file off at this offset */
	FAULT_NOCACHESTAT,   /* no such call */
	FAULT_NONOWAIT,      /* preadv2 cannot do RWF_NOWAIT */
	FAULT_NOCORE,        /* mincore is not allowed */
	FAULT_COLD,          /* cachestat counts nothing */
	FAULT_POOR,          /* so many bytes of memory are available, as /proc/meminfo has it */
	FAULT_MLOCK,         /* mlock, from the call of this number (from 1) on */
	FAULT_POPULATE,      /* faulting memory in, from the call of this number on */
	FAULT_POPULATE_ONCE, /* that call alone */
	FAULT_POPULATE_THREADS, /* by threads other than the first */
	N_FAULTS
};

static const char *const names[N_FAULTS] = {
	"short",    "eintr",       "einval",   "eio",           "ends",
	"truncate", "nocachestat", "nonowait", "nocore",        "cold",
	"poor",     "mlock",       "populate", "populate_once", "populate_threads",
};

static bool on[N_FAULTS];
static uint64_t number[N_FAULTS];
static atomic_bool seen[N_FAULTS];
static atomic_uint_fast64_t locks, populates;

static ssize_t (*real_preadv)(int, const struct iovec *, int, off_t);
static ssize_t (*real_preadv2)(int, const struct iovec *, int, off_t, int);
static long (*real_syscall)(long, ...);
static int (*real_mincore)(void *, size_t, unsigned char *);
static int (*real_mlock)(const void *, size_t);
static int (*real_madvise)(void *, size_t, int);
static FILE *(*real_fopen)(const char *, const char *);

static void
read_words(const char *words)
{
	char name[32];
	int n = 0;

	for (; sscanf(words, "%31[a-z_]%n", name, &n) == 1; words += n + (words[n] == ',')) {
		const char *value = words[n] == '=' ? words + n + 1 : "0";
		int i = 0;

		while (i < N_FAULTS && strcmp(name, names[i]) != 0)
			i++;
		if (i == N_FAULTS)
			abort();
		on[i] = true;
		number[i] = strtoull(value, NULL, 10);
		if (words[n] == '=')
			n += 1 + (int)strspn(value, "0123456789");
	}
}

/* At the first call, which other libraries' constructors may make; threads come later. */
static void
find_calls(void)
{
	const char *words = getenv("HEARTH_FAULTS");
	bool ours = strcmp(program_invocation_short_name, "loader") == 0 ||
		    strcmp(program_invocation_short_name, "pinner") == 0;

	if (real_fopen)
		return;
	*(void **)&real_preadv = dlsym(RTLD_NEXT, "preadv");
	*(void **)&real_preadv2 = dlsym(RTLD_NEXT, "preadv2");
	*(void **)&real_syscall = dlsym(RTLD_NEXT, "syscall");
	*(void **)&real_mincore = dlsym(RTLD_NEXT, "mincore");
	*(void **)&real_mlock = dlsym(RTLD_NEXT, "mlock");
	*(void **)&real_madvise = dlsym(RTLD_NEXT, "madvise");
	*(void **)&real_fopen = dlsym(RTLD_NEXT, "fopen");
	if (ours && words)
		read_words(words);
}

/* Notes the fault; false: it is not wanted. */
static bool
put_in(enum fault fault)
{
	const char *path = getenv("HEARTH_FAULTS_SEEN");
	int fd;

	if (!on[fault])
		return false;
	if (!path || atomic_exchange(&seen[fault], true))
		return true;
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || dprintf(fd, "%s\n", names[fault]) < 0)
		abort();
	close(fd);
	return true;
}

static bool
interrupts(void)
{
	static _Thread_local uint32_t calls;

	return on[FAULT_EINTR] && calls++ % 2 == 0 && put_in(FAULT_EINTR);
}

static bool
holds(uint64_t from, uint64_t bytes, uint64_t at)
{
	return from <= at && at - from < bytes;
}

static void
cut_off(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	put_in(FAULT_TRUNCATE);
	if (truncate(path, (off_t)number[FAULT_TRUNCATE]) < 0)
		abort();
}

/* Before a read: 0 = go on, or what it is to answer with. */
static int
fails(int fd, uint64_t bytes, uint64_t at)
{
	if (on[FAULT_TRUNCATE] && !seen[FAULT_TRUNCATE] && at > 0 && bytes >= 4096)
		cut_off(fd);
	if (interrupts())
		return EINTR;
	if (on[FAULT_EINVAL] && (fcntl(fd, F_GETFL) & O_DIRECT) && put_in(FAULT_EINVAL))
		return EINVAL;
	if (on[FAULT_EIO] && holds(at, bytes, number[FAULT_EIO]) && put_in(FAULT_EIO))
		return EIO;
	return 0;
}

/* Bytes behind the first `keep` of what was read were never there. */
static ssize_t
spoil(const struct iovec *to, int n, size_t got, size_t keep)
{
	size_t at = 0;

	for (int i = 0; i < n && at < got; i++) {
		size_t end = got - at < to[i].iov_len ? got - at : to[i].iov_len;
		size_t from = keep > at ? keep - at : 0;

		if (from < end)
			memset((char *)to[i].iov_base + from, POISON, end - from);
		at += to[i].iov_len;
	}
	return (ssize_t)keep;
}

/* After a read. */
static ssize_t
shorten(const struct iovec *to, int n, ssize_t got, uint64_t at)
{
	size_t keep;

	if (got <= 0)
		return got;
	keep = (size_t)got;
	if (on[FAULT_ENDS] && at + keep > number[FAULT_ENDS] && put_in(FAULT_ENDS))
		keep = at < number[FAULT_ENDS] ? number[FAULT_ENDS] - at : 0;
	if (on[FAULT_SHORT] && keep > 2 && put_in(FAULT_SHORT))
		keep -= keep / 3;
	return spoil(to, n, (size_t)got, keep);
}

ssize_t
preadv(int fd, const struct iovec *to, int n, off_t at)
{
	uint64_t bytes = 0;
	int error;

	find_calls();
	for (int i = 0; i < n; i++)
		bytes += to[i].iov_len;
	error = fails(fd, bytes, (uint64_t)at);
	if (error) {
		errno = error;
		return -1;
	}
	return shorten(to, n, real_preadv(fd, to, n, at), (uint64_t)at);
}

ssize_t
pread(int fd, void *to, size_t bytes, off_t at)
{
	const struct iovec part = { to, bytes };

	return preadv(fd, &part, 1, at);
}

ssize_t
preadv2(int fd, const struct iovec *to, int n, off_t at, int flags)
{
	find_calls();
	if (flags == RWF_NOWAIT && put_in(FAULT_NONOWAIT)) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return real_preadv2(fd, to, n, at, flags);
}

long
syscall(long call, ...)
{
	long word[6];
	va_list words;

	find_calls();
	va_start(words, call);
	for (int i = 0; i < 6; i++)
		word[i] = va_arg(words, long);
	va_end(words);
	if (call == SYS_cachestat && put_in(FAULT_NOCACHESTAT)) {
		errno = ENOSYS;
		return -1;
	}
	if (call == SYS_cachestat && put_in(FAULT_COLD))
		return 0; /* the caller's counts are 0 as they were */
	return real_syscall(call, word[0], word[1], word[2], word[3], word[4], word[5]);
}

int
mincore(void *at, size_t bytes, unsigned char *pages)
{
	find_calls();
	if (put_in(FAULT_NOCORE)) {
		errno = EPERM;
		return -1;
	}
	return real_mincore(at, bytes, pages);
}

/* Whether the call of this number is to fail. */
static bool
fails_from(enum fault fault, uint64_t call)
{
	return on[fault] && call >= number[fault] && put_in(fault);
}

int
mlock(const void *at, size_t bytes)
{
	find_calls();
	if (fails_from(FAULT_MLOCK, atomic_fetch_add(&locks, 1) + 1)) {
		errno = ENOMEM;
		return -1;
	}
	return real_mlock(at, bytes);
}

static bool
is_not_there(void)
{
	uint64_t call = atomic_fetch_add(&populates, 1) + 1;

	if (on[FAULT_POPULATE_THREADS] && gettid() != getpid())
		return put_in(FAULT_POPULATE_THREADS);
	return fails_from(FAULT_POPULATE, call) ||
	       (call == number[FAULT_POPULATE_ONCE] && put_in(FAULT_POPULATE_ONCE));
}

int
madvise(void *at, size_t bytes, int advice)
{
	find_calls();
	if (advice == MADV_POPULATE_WRITE && is_not_there()) {
		errno = EFAULT;
		return -1;
	}
	return real_madvise(at, bytes, advice);
}

static FILE *
poor_meminfo(void)
{
	FILE *file = tmpfile();

	if (!file)
		abort();
	fprintf(file, "MemTotal: 33554432 kB\nMemAvailable: %llu kB\n",
		(unsigned long long)number[FAULT_POOR] / 1024);
	rewind(file);
	return file;
}

FILE *
fopen(const char *path, const char *mode)
{
	static const char meminfo[] = "/proc/meminfo";
	size_t n = strlen(path);

	find_calls();
	if (on[FAULT_POOR] && n >= sizeof(meminfo) - 1 &&
	    strcmp(path + n - (sizeof(meminfo) - 1), meminfo) == 0 && put_in(FAULT_POOR))
		return poor_meminfo();
	return real_fopen(path, mode);
}
