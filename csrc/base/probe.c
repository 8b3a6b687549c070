#include "base/probe.h"

#include <malloc.h>
#include <string.h>

static size_t extent_of(char *const *objects, int count, size_t limit) {
    for (int i = 0; i < count; i++) {
        size_t size = malloc_usable_size(objects[i]);
        if (size < limit) limit = size;
    }
    return limit;
}

static uint64_t word_at(const char *object, size_t at) {
    uint64_t word;
    memcpy(&word, object + at, sizeof word);
    return word;
}

long dycl_probe_word(char *const *objects, const uint64_t *expected, int count, size_t first, size_t limit) {
    long found = -1;
    limit = extent_of(objects, count, limit);
    for (size_t at = first; at + 8 <= limit; at += 8) {
        int match = 1;
        for (int i = 0; i < count && match; i++) match = word_at(objects[i], at) == expected[i];
        if (!match) continue;
        if (found >= 0) return -1;
        found = (long)at;
    }
    return found;
}

/* Of the objects with the flag: none of the others' pointers is known. */
static int holds_pointers(char *const *objects, const int *set, const uint64_t *own, int count, size_t at) {
    int all_own = 1, all_same = 1;
    uint64_t same = 0;
    for (int i = 0; i < count; i++) {
        if (!set[i]) continue;
        uint64_t word = word_at(objects[i], at);
        if (!same) same = word;
        all_own &= word == own[i];
        all_same &= word == same && word >> 12 && !(word >> 47);
    }
    return all_own || all_same;
}

long dycl_probe_flag(char *const *objects, const int *set, const uint64_t *own, int count, size_t first, size_t limit) {
    long found = -1;
    limit = extent_of(objects, count, limit);
    for (size_t at = first; at + 8 <= limit; at += 8) {
        if (holds_pointers(objects, set, own, count, at)) continue;
        for (size_t byte = at; byte < at + 8; byte++) {
            int match = 1;
            for (int i = 0; i < count && match; i++) match = objects[i][byte] == (set[i] ? 1 : 0);
            if (!match) continue;
            if (found >= 0) return -1;
            found = (long)byte;
        }
    }
    return found;
}
