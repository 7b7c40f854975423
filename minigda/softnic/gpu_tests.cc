// The tests that softnic's GPU engine shares with the CPU engine, as one program with a name for each (hard links): apart,
// every one would carry the CUDA runtime and the engine. The Makefile renames their mains.
#include <cstdio>
#include <cstring>

extern "C" {
int wqe_test_main();
int queue_test_main();
int error_test_main();
int dc_test_main();
int pace_test_main();
}

static const struct {
    const char *name;
    int (*main)();
} tests[] = {
    {"softnic_wqe_test", wqe_test_main},     {"softnic_queue_test", queue_test_main},
    {"softnic_error_test", error_test_main}, {"softnic_dc_test", dc_test_main},
    {"softnic_pace_test", pace_test_main},
};

int main(int, char **argv) {
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    for (const auto &t : tests)
        if (strcmp(name, t.name) == 0)
            return t.main();
    fprintf(stderr, "%s is none of the tests in it:", name);
    for (const auto &t : tests)
        fprintf(stderr, " %s", t.name);
    fprintf(stderr, "\n");
    return 2;
}
