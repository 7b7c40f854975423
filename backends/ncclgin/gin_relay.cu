// gin_memory.h's Relay: a kernel of one warp for each call, on a stream of its own.
#include "backends/ncclgin/gin_memory.h"

#include "backends/abi/cuda_check.h"

namespace ncclgin {

namespace {

__global__ void add_words(const __grid_constant__ Relay::Words words) {
    // System scope: whoever waits for a word may have seen what a processor wrote before.
    if (threadIdx.x < words.count)
        atomicAdd_system((unsigned long long *)words.addr[threadIdx.x],
                         (unsigned long long)words.delta[threadIdx.x]);
}

class CudaRelay final : public Relay {
  public:
    int start();
    ~CudaRelay() override {
        if (stream_)
            cudaStreamDestroy(stream_);
    }
    int add(const Words &words) override {
        add_words<<<1, MAX_WORDS, 0, stream_>>>(words);
        GIC_CUDA(cudaGetLastError());
        return 0;
    }

  private:
    cudaStream_t stream_ = nullptr;
};

int CudaRelay::start() {
    int least = 0, greatest = 0;
    GIC_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    GIC_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    // Loaded now: a kernel that waits for the first signal must not stand in the loader's way.
    const Words none = {};
    if (int rc = add(none))
        return rc;
    GIC_CUDA(cudaStreamSynchronize(stream_));
    return 0;
}

} // namespace

int Relay::open(std::unique_ptr<Relay> *relay_p) {
    auto relay = std::make_unique<CudaRelay>();
    if (int rc = relay->start())
        return rc;
    *relay_p = std::move(relay);
    return 0;
}

} // namespace ncclgin
