/* A libcuda.so.1 with as many devices as GIC_FAKE_CUDA_DEVICES says; without it cuInit finds none. */
#include <stdlib.h>

#define PUBLIC __attribute__((visibility("default")))
PUBLIC int cuInit(unsigned flags);
PUBLIC int cuDeviceGetCount(int *count);
PUBLIC int cuGetErrorString(int error, const char **text);

int cuInit(unsigned flags) { return flags != 0 || getenv("GIC_FAKE_CUDA_DEVICES") ? 0 : 100; }
int cuDeviceGetCount(int *count) {
    *count = atoi(getenv("GIC_FAKE_CUDA_DEVICES"));
    return 0;
}
int cuGetErrorString(int error, const char **text) {
    *text = error == 100 ? "no CUDA-capable device is detected" : "other";
    return 0;
}
