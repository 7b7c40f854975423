/* For tests that are plain mains: CHECK counts what does not hold in `failures`, tells where, and goes on. */
#ifndef GIC_ABI_CHECK_H
#define GIC_ABI_CHECK_H

#include <stdio.h>

static int failures;

#define CHECK(cond, ...)                                                                                     \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond);                                       \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fprintf(stderr, "\n");                                                                           \
            failures++;                                                                                      \
        }                                                                                                    \
    } while (0)

#endif
