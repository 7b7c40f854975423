/* The half of the NCCL backend that holds device code, as far as it is looked at when it is loaded: compiled with the headers
 * of NCCL HEADERS, and of this build unless ABI says otherwise. */
#include "backends/abi/backend.h"
#ifndef ABI
#define ABI GIC_ABI_VERSION
#endif
#define PUBLIC __attribute__((visibility("default")))
PUBLIC extern const int gic_ncclgin_headers_v1;
const int gic_ncclgin_headers_v1 = HEADERS;
PUBLIC extern const struct gic_backend gic_ncclgin_session_v1;
const struct gic_backend gic_ncclgin_session_v1 = {.struct_size = sizeof(struct gic_backend), .abi = ABI};
