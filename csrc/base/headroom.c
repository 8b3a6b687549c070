#include "base/headroom.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The number behind `name` in a file; 0 when there is none ("max" is none). */
static uint64_t number_in(const char *path, const char *name) {
    char line[128];
    unsigned long long found = 0;
    size_t length = strlen(name);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file))
        if (!strncmp(line, name, length) && sscanf(line + length, "%llu", &found) != 1) found = 0;
    fclose(file);
    return found;
}

static int leaves_enough(uint64_t total, uint64_t left, uint64_t bytes) {
    return left >= bytes && left - bytes >= total / 4;
}

int dycl_memory_headroom(size_t bytes) {
    static const char *const groups[][2] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
    uint64_t total = number_in("/proc/meminfo", "MemTotal:") * 1024,
             left = number_in("/proc/meminfo", "MemAvailable:") * 1024;
    if (total && !leaves_enough(total, left, bytes)) return 0;
    for (int i = 0; i < 2; i++) {
        uint64_t limit = number_in(groups[i][0], ""), used = number_in(groups[i][1], "");
        if (limit && !leaves_enough(limit, limit > used ? limit - used : 0, bytes)) return 0;
    }
    return 1;
}
