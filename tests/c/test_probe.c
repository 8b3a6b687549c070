/* base/probe: fields of foreign objects are found among pointers whose bytes agree with a flag by chance, and nothing
 * is found rather than something else. */
#include "base/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECTS = 8, FIELDS = 12, FLAG = 56 };

static int checks, failures;

static void expect(int condition, const char *what) {
    checks++;
    if (condition) return;
    failures++;
    printf("FAILED: %s\n", what);
}

typedef struct {
    uint64_t *objects[OBJECTS], own[OBJECTS];
    int set[OBJECTS];
} population;

static uint64_t next(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 17;
}

/* As torch's storages: the memory twice (pointer and context), a function's address, sizes, the flag beside others. */
static void make(population *p, uint64_t *state, uint64_t own_byte, uint64_t foreign_byte) {
    for (int i = 0; i < OBJECTS; i++) {
        uint64_t *o = p->objects[i];
        p->set[i] = i % 4 != 3;
        uint64_t near = next(state) % 0x8000 << 4, byte = p->set[i] ? own_byte : foreign_byte;
        p->own[i] = UINT64_C(0x550000000000) | byte << 32 | byte << 24 | near;
        for (int f = 0; f < FIELDS; f++) o[f] = 1000 + next(state) % 100;
        o[2] = p->own[i];
        o[3] = p->set[i] ? p->own[i] : UINT64_C(0x7f0000000000);
        o[4] = p->set[i] ? UINT64_C(0x7f0101010160) : 0;
        o[FLAG / 8] = (p->set[i] ? UINT64_C(0x1) : 0) | UINT64_C(0x5500000000000000);
    }
}

static void flags(void) {
    population p;
    uint64_t state = 7;
    int found = 1, none = 1;
    for (int i = 0; i < OBJECTS; i++)
        if (!(p.objects[i] = malloc(FIELDS * sizeof(uint64_t)))) exit(1);
    for (int byte = 0; byte < 256; byte++) {
        make(&p, &state, (uint64_t)byte, 0); /* byte 1: addresses that agree with the flag */
        found &= dycl_probe_flag((char *const *)p.objects, p.set, p.own, OBJECTS, 16, 96) == FLAG;
        make(&p, &state, (uint64_t)byte, 0);
        p.objects[3][FLAG / 8] |= 1;
        none &= dycl_probe_flag((char *const *)p.objects, p.set, p.own, OBJECTS, 16, 96) == -1;
    }
    expect(found, "the flag is found wherever memory lies");
    expect(none, "a flag that an object without it has is none");
    make(&p, &state, 9, 0);
    for (int i = 0; i < OBJECTS; i++) ((char *)p.objects[i])[80] = (char)p.set[i];
    expect(dycl_probe_flag((char *const *)p.objects, p.set, p.own, OBJECTS, 16, 96) == -1, "two flags are none");
    for (int i = 0; i < OBJECTS; i++) free(p.objects[i]);
}

static void words(void) {
    char *objects[OBJECTS];
    uint64_t expected[OBJECTS], state = 3;
    for (int i = 0; i < OBJECTS; i++) {
        if (!(objects[i] = calloc(FIELDS, sizeof(uint64_t)))) exit(1);
        expected[i] = next(&state);
        memcpy(objects[i] + 40, &expected[i], 8);
    }
    expect(dycl_probe_word(objects, expected, OBJECTS, 8, 256) == 40, "a word is found, and no memory of others read");
    expect(dycl_probe_word(objects, expected, OBJECTS, 48, 256) == -1, "a word is not found behind its place");
    for (int i = 0; i < OBJECTS; i++) memcpy(objects[i] + 64, &expected[i], 8);
    expect(dycl_probe_word(objects, expected, OBJECTS, 8, 256) == -1, "a word that stands twice is none");
    for (int i = 0; i < OBJECTS; i++) free(objects[i]);
}

int main(void) {
    flags();
    words();
    printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
