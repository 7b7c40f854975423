// Device memory for other processes and other devices of this one: by CUDA IPC where it is cudaMalloc's, by a file
// descriptor of its allocation where it is mapped by cuMemMap.
//
// The descriptor stays open here until the memory is withdrawn; a peer fetches a copy of it out of this process
// (pidfd_getfd), so that nobody needs a socket. The handle in the shared segment is then a process and a descriptor.
#ifndef SOFTNIC_GPU_SHARE_CUH
#define SOFTNIC_GPU_SHARE_CUH

#include "gpu.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace softnic_share {

// The driver's calls that the runtime does not offer.
struct Driver {
    CUresult (*range)(CUdeviceptr *, size_t *, CUdeviceptr);
    CUresult (*retain)(CUmemGenericAllocationHandle *, void *);
    CUresult (*properties)(CUmemAllocationProp *, CUmemGenericAllocationHandle);
    CUresult (*out)(void *, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long);
    CUresult (*in)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    const char *missing; // the first call that this driver does not have, or nullptr
};

template <class F> void find(Driver &d, F *f, const char *name, unsigned version) {
    void *p = nullptr;
    cudaDriverEntryPointQueryResult found;
    const bool there =
        cudaGetDriverEntryPointByVersion(name, &p, version, cudaEnableDefault, &found) == cudaSuccess &&
        found == cudaDriverEntryPointSuccess;
    if (!there && !d.missing)
        d.missing = name;
    *f = reinterpret_cast<F>(p);
}

inline const Driver &driver() {
    static const Driver once = [] {
        Driver d{};
        find(d, &d.range, "cuMemGetAddressRange", 3020);
        find(d, &d.retain, "cuMemRetainAllocationHandle", 11000);
        find(d, &d.properties, "cuMemGetAllocationPropertiesFromHandle", 10020);
        find(d, &d.out, "cuMemExportToShareableHandle", 10020);
        find(d, &d.in, "cuMemImportFromShareableHandle", 10020);
        find(d, &d.release, "cuMemRelease", 10020);
        find(d, &d.reserve, "cuMemAddressReserve", 10020);
        find(d, &d.unreserve, "cuMemAddressFree", 10020);
        find(d, &d.map, "cuMemMap", 10020);
        find(d, &d.unmap, "cuMemUnmap", 10020);
        find(d, &d.access, "cuMemSetAccess", 10020);
        return d;
    }();
    return once;
}

inline int check_driver() {
    return driver().missing ? softnic_fail(-ENOTSUP, "GPU engine: the driver has no %s", driver().missing)
                            : 0;
}

inline int fail(CUresult r, const char *what) {
    return softnic_fail(r == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO,
                        "GPU engine: %s: CUDA driver error %d", what, (int)r);
}

struct Range {
    CUdeviceptr base;
    size_t bytes;
};
inline int range_of(const void *addr, Range *r) {
    if (int status = check_driver())
        return status;
    return driver().range(&r->base, &r->bytes, (CUdeviceptr)addr) == CUDA_SUCCESS
               ? 0
               : softnic_fail(-EFAULT, "GPU engine: no allocation is known at %p", addr);
}

// Is the memory at addr mapped by cuMemMap? *handle_p must be released then.
inline bool is_mapped(const void *addr, CUmemGenericAllocationHandle *handle_p) {
    return !driver().missing && driver().retain(handle_p, const_cast<void *>(addr)) == CUDA_SUCCESS;
}

inline int grant(const Range &r, int device) {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const CUresult got = driver().access(r.base, r.bytes, &access, 1);
    return got == CUDA_SUCCESS ? 0 : fail(got, "cuMemSetAccess");
}

struct Descriptor { // in the shared segment
    int32_t pid, fd;
    uint64_t bytes;
};

inline int share_mapped(const Range &r, CUmemGenericAllocationHandle handle, uint8_t out[GPU_HANDLE]) {
    CUmemAllocationProp prop{};
    int fd = -1;
    CUresult got = driver().properties(&prop, handle);
    if (got == CUDA_SUCCESS && !(prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return softnic_fail(
            -EINVAL,
            "GPU engine: the memory at 0x%llx was made for handles of type %d; want POSIX file "
            "descriptors (%d)",
            (unsigned long long)r.base, (int)prop.requestedHandleTypes,
            (int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (got == CUDA_SUCCESS)
        got = driver().out(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (got != CUDA_SUCCESS)
        return fail(got, "cuMemExportToShareableHandle");
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); // where Yama asks for it
    const Descriptor d = {(int32_t)getpid(), fd, r.bytes};
    static_assert(sizeof d <= GPU_HANDLE, "fits its place in the shared segment");
    memset(out, 0, GPU_HANDLE);
    memcpy(out, &d, sizeof d);
    return 0;
}

inline int fetch(const Descriptor &d) {
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
    const int process = (int)syscall(SYS_pidfd_open, d.pid, 0);
    const int fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, d.fd, 0);
    const int error = errno;
    if (process >= 0)
        close(process);
    return fd >= 0 ? fd
                   : softnic_fail(-error, "GPU engine: file descriptor %d of process %d: %s", d.fd, d.pid,
                                  strerror(error));
#else
    return softnic_fail(-ENOTSUP, "GPU engine: this system has no pidfd_getfd (process %d)", d.pid);
#endif
}

inline int open_mapped(const uint8_t handle[GPU_HANDLE], int device, void **base_p) {
    Descriptor d;
    memcpy(&d, handle, sizeof d);
    if (int status = check_driver())
        return status;
    const int fd = fetch(d);
    if (fd < 0)
        return fd;
    CUmemGenericAllocationHandle memory;
    const char *what = "cuMemImportFromShareableHandle";
    CUresult got = driver().in(&memory, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    if (got != CUDA_SUCCESS)
        return fail(got, what);
    Range r{0, (size_t)d.bytes};
    int status = 0;
    if ((got = driver().reserve(&r.base, r.bytes, 0, 0, 0)) != CUDA_SUCCESS)
        status = fail(got, "cuMemAddressReserve");
    else if ((got = driver().map(r.base, r.bytes, 0, memory, 0)) != CUDA_SUCCESS)
        status = fail(got, "cuMemMap");
    else if ((status = grant(r, device)) != 0)
        driver().unmap(r.base, r.bytes);
    if (status && r.base)
        driver().unreserve(r.base, r.bytes);
    driver().release(memory); // the mapping holds it
    *base_p = (void *)r.base;
    return status;
}

inline int close_mapped(void *base) {
    Range r;
    if (int status = range_of(base, &r))
        return status;
    CUresult got = driver().unmap(r.base, r.bytes);
    if (got == CUDA_SUCCESS)
        got = driver().unreserve(r.base, r.bytes);
    return got == CUDA_SUCCESS ? 0 : fail(got, "cuMemUnmap");
}

} // namespace softnic_share

#endif
