// The device of a plugin that was built without CUDA: there is none.
#include "backends/abi/driver.cuh"

namespace gic {

bool Gpu::built() { return false; }
int Gpu::open(const char *device, std::unique_ptr<Gpu> *) {
    return fail(-ENOTSUP, "device=%s: built without CUDA", device);
}

} // namespace gic
