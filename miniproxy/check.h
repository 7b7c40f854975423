// CHECK for the tests of this folder: the first thing that is not so ends the test, with its place and why.
#ifndef MINIPROXY_CHECK_H
#define MINIPROXY_CHECK_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

#define CHECK(cond, ...)                                                                                     \
    do {                                                                                                     \
        if (!(cond)) {                                                                                       \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond);                                       \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fprintf(stderr, "\n");                                                                           \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

// A failed CHECK leaves without destructors; the shared memory of this process must go all the same (atexit).
inline std::string shm_prefix(const char *test) { return test + std::to_string(getpid()) + "-"; }
inline void shm_unlink_all(const std::string &prefix) {
    DIR *shm = opendir("/dev/shm");
    if (!shm)
        return;
    while (struct dirent *e = readdir(shm))
        if (strncmp(e->d_name, prefix.c_str(), prefix.size()) == 0)
            unlinkat(dirfd(shm), e->d_name, 0);
    closedir(shm);
}

#endif
