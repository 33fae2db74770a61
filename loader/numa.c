#include "loader/numa.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VENDOR_NVIDIA 0x10de
#define CLASS_DISPLAY 0x03 /* graphics, and compute devices without an output */

/* The nodes in a list like "0-1,3": how many, and whether `node` is one of them.  0: no list. */
static uint32_t
count_list(const char *sys, const char *list, int node, bool *ret_is_one)
{
	char path[PATH_MAX];
	uint32_t count = 0;
	int from, to;
	FILE *file;

	*ret_is_one = false;
	snprintf(path, sizeof(path), "%s/devices/system/node/%s", sys, list);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fscanf(file, "%d", &from) == 1 && from >= 0) {
		int next = fgetc(file);

		to = from;
		if (next == '-' && fscanf(file, "%d", &to) == 1)
			next = fgetc(file);
		if (to < from || to >= NUMA_MAX_NODES)
			break;
		count += (uint32_t)(to - from) + 1;
		*ret_is_one = *ret_is_one || (node >= from && node <= to);
		if (next != ',')
			break;
	}
	fclose(file);
	return count;
}

/* Those that have memory: of the others nothing can lie on any.  Where the kernel does not say
 * which, all do. */
static uint32_t
count_nodes(const char *sys, int node, bool *ret_is_one)
{
	uint32_t nodes = count_list(sys, "has_memory", node, ret_is_one);

	return nodes ? nodes : count_list(sys, "online", node, ret_is_one);
}

static bool
read_device(const char *sys, const char *device, const char *name, int *ret)
{
	char path[PATH_MAX];
	FILE *file;
	bool found;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/%s", sys, device, name);
	file = fopen(path, "re");
	if (!file)
		return false;
	found = fscanf(file, "%i", ret) == 1;
	fclose(file);
	return found;
}

static bool
is_gpu(const char *sys, const char *device)
{
	int vendor, kind;

	return read_device(sys, device, "vendor", &vendor) && vendor == VENDOR_NVIDIA &&
	       read_device(sys, device, "class", &kind) && kind >> 16 == CLASS_DISPLAY;
}

/* -1: no GPU says a node; *ret_other is another node than the first one's, or -1. */
static int
gpu_node(const char *sys, int *ret_other)
{
	char path[PATH_MAX];
	int node = -1, one;
	struct dirent *entry;
	DIR *devices;

	*ret_other = -1;
	snprintf(path, sizeof(path), "%s/bus/pci/devices", sys);
	devices = opendir(path);
	if (!devices)
		return -1;
	while ((entry = readdir(devices)) != NULL) {
		if (entry->d_name[0] == '.' || !is_gpu(sys, entry->d_name) ||
		    !read_device(sys, entry->d_name, "numa_node", &one) || one < 0)
			continue;
		if (node < 0)
			node = one;
		else if (one != node)
			*ret_other = one;
	}
	closedir(devices);
	return node;
}

int
numa_find_node(const char *sys, char *note, size_t room)
{
	bool is_one;
	uint32_t nodes = count_nodes(sys, -1, &is_one);
	int node, other;

	if (nodes <= 1) {
		snprintf(note, room, "the machine has one NUMA node%s",
			 count_list(sys, "online", -1, &is_one) > 1 ? " with memory" : "");
		return -1;
	}
	node = gpu_node(sys, &other);
	if (node < 0) {
		snprintf(note, room, "%u NUMA nodes, and no GPU says which one is its own", nodes);
		return -1;
	}
	if (other >= 0) {
		snprintf(note, room, "GPUs on NUMA nodes %d and %d: --numa-node N picks one",
			 node < other ? node : other, node < other ? other : node);
		return -1;
	}
	count_nodes(sys, node, &is_one);
	if (!is_one) {
		snprintf(note, room, "the GPU's NUMA node %d has no memory of its own", node);
		return -1;
	}
	snprintf(note, room, "the GPU's, of %u NUMA nodes", nodes);
	return node;
}

int
numa_check_node(const char *sys, int node, struct error *err)
{
	bool is_one, is_online;
	uint32_t nodes = count_nodes(sys, node, &is_one);

	count_list(sys, "online", node, &is_online);
	if (!is_one && is_online)
		return error_set(err, -ENODEV,
				 "--numa-node %d: it has no memory, want one of those in "
				 "%s/devices/system/node/has_memory",
				 node, sys);
	if (!is_one && !(nodes == 0 && node == 0))
		return error_set(err, -ENODEV,
				 "--numa-node %d: no such node, the machine has %u (%s"
				 "/devices/system/node/online)",
				 node, nodes ? nodes : 1, sys);
	return nodes <= 1;
}

int
numa_prefer(void *at, uint64_t bytes, int node)
{
	unsigned long mask[NUMA_MAX_NODES / (8 * sizeof(unsigned long))] = { 0 };
	const uint32_t bits = 8 * sizeof(*mask);

	if (node < 0 || node >= NUMA_MAX_NODES)
		return -EINVAL;
	mask[(uint32_t)node / bits] = 1ul << ((uint32_t)node % bits);
	return syscall(SYS_mbind, at, bytes, MPOL_PREFERRED, mask, NUMA_MAX_NODES, 0ul) < 0 ? -errno
											    : 0;
}
