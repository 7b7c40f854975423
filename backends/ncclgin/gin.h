// Between the plugin's two tables (gin.cc, net.cc).
#ifndef BACKENDS_NCCLGIN_GIN_H
#define BACKENDS_NCCLGIN_GIN_H

#include "backends/ncclgin/gin_job.h"

namespace ncclgin {

// What both tables tell of the one device; the types differ.
void properties(nccl_abi::DeviceType type, nccl_abi::Properties *p);

// -ENOTSUP: an NCCL of other device structs. `code` as ncclGetVersion says it.
int check_nccl(int code, const char *path);
int check_loaded_nccl();

// 0, or -EIO and which queue pair has failed.
int queues_error(const Queues &queues);
int coll_error(const Coll *coll);
void coll_free(Coll *coll);

// See net.h.
int window_register(void *addr, size_t bytes, void **handles_p, uint32_t count);
int window_deregister(void *addr);

} // namespace ncclgin

#endif
