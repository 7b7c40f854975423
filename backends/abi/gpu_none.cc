// The device of a plugin that was built without CUDA: there is none.
#include "backends/abi/driver.cuh"

namespace gic {

namespace {
int none() { return fail(-ENOTSUP, "built without CUDA"); }
} // namespace

bool Gpu::built() { return false; }
int Gpu::open(const char *device, std::unique_ptr<Gpu> *) {
    return fail(-ENOTSUP, "device=%s: built without CUDA", device);
}
Gpu::~Gpu() = default;
int Gpu::map(void *, size_t) { return none(); }
int Gpu::unmap(void *) { return none(); }
int Gpu::alloc(size_t, void **) { return none(); }
int Gpu::free(void *) { return none(); }
int Gpu::upload(void *, const void *, size_t) { return none(); }
int Gpu::download(void *, const void *, size_t) { return none(); }
int Gpu::wait(const volatile uint32_t *, uint64_t) { return none(); }

} // namespace gic
