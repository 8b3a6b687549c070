/* The plan fuzzer (tests/fuzz/plan_fuzz.c) without libFuzzer and for a bounded time: graphs grow by random mutations
 * from nothing, each is planned in every mode and compared with the reference interpreter. */
#include "../fuzz/plan_fuzz.c"

#include <time.h>

enum { ROOM = 6000, CHAINS = 400, LINKS = 6 };

/* libFuzzer's own mutator, as far as it is needed: bytes change. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room) {
    if (size == 0 && room) data[size++] = '#';
    for (int64_t i = 1 + below(3); i > 0 && size; i--) data[below((int64_t)size)] = (uint8_t)below(128);
    return size;
}

int main(int count, char **arguments) {
    static uint8_t data[ROOM + 1];
    unsigned first = count > 1 ? (unsigned)strtoul(arguments[1], NULL, 10) : 0;
    int graphs = 0;
    clock_t begin = clock();
    LLVMFuzzerInitialize(&count, &arguments);
    for (unsigned chain = 0; chain < CHAINS && clock() - begin < 60 * (clock_t)CLOCKS_PER_SEC; chain++) {
        size_t size = 0;
        for (unsigned link = 0; link < LINKS; link++, graphs++) {
            size = LLVMFuzzerCustomMutator(data, size, ROOM, first * CHAINS * LINKS + chain * LINKS + link);
            LLVMFuzzerTestOneInput(data, size);
        }
    }
    printf("%d graphs\nok\n", graphs);
    return 0;
}
