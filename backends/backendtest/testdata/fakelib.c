/* A library that only tells its version: NCCL's and NVSHMEM's question, whichever is asked. */
#define PUBLIC __attribute__((visibility("default")))
#ifdef NCCL
PUBLIC int ncclGetVersion(int *version);
int ncclGetVersion(int *version) {
    *version = NCCL;
    return 0;
}
#endif
#ifdef NVSHMEM_PATCH
PUBLIC void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch);
void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch) {
    *major = 3;
    *minor = 4;
    *patch = NVSHMEM_PATCH;
}
#endif
