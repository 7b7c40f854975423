// What libnccl and a NET+GIN plugin say to each other, and what NCCL's GDAKI device code reads of a context.
//
// The two tables and the properties are in no header that NCCL's packages install. They are restated here as they lie in
// memory (x86-64, version 11 of both, which is what NCCL 2.28.9 asks for first and, for GIN, only), from a reading of
// the published source and of runs; every offset is asserted, so that an edit cannot move one by accident. The device
// structs are in the installed nccl_device headers: table_test.cc compares them with what is restated here.
//
// A null member is "has none". Whatever a call answers but SUCCESS ends what NCCL was about to do.
#ifndef BACKENDS_NCCLGIN_TABLE_ABI_H
#define BACKENDS_NCCLGIN_TABLE_ABI_H

#include <stddef.h>
#include <stdint.h>

namespace nccl_abi {

enum Result : int { SUCCESS = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_USAGE = 5, REMOTE_ERROR = 6 };
enum LogLevel : int { LOG_WARN = 2 };
enum DeviceType : int { DEVICE_HOST = 0, DEVICE_GIN_PROXY = 2, DEVICE_GIN_GDAKI = 3 };
enum Pointer : int { POINTER_HOST = 1, POINTER_CUDA = 2 };
enum SignalOp : uint32_t { SIGNAL_INC = 1, SIGNAL_ADD = 2 };
enum { HANDLE_BYTES = 128, GDAKI_VERSION = 100, PROXY_VERSION = 100, MR_FORCE_ORDER = 1 };

// `flags`: which of NCCL's subsystems; the format is printf's.
using Logger = void (*)(int level, unsigned long flags, const char *file, int line, const char *fmt, ...);

struct Properties {
    const char *name, *pci_path;
    uint64_t guid;
    int pointers, mr_is_global, force_flush;
    int speed; // Mbit/s
    int port;
    float latency;
    int max_comms;
    int max_recvs; // a power of two: NCCL's proxy sizes a queue by it
    int device_type, device_version;
    struct {
        int count, devices[4];
    } virtual_of;
    size_t max_p2p_bytes, max_coll_bytes;
    int max_multi_request;
};

// What createContext gives. `handle` is an address that device code can load from.
struct DeviceHandle {
    int type, version;
    void *handle;
    size_t bytes;
    int needs_progress;
};

struct NetTable {
    const char *name;
    Result (*init)(void **ctx_p, uint64_t comm_id, void *config, Logger, void *profiler);
    Result (*devices)(int *count_p);
    Result (*get_properties)(int device, Properties *);
    Result (*listen)(void *ctx, int device, void *handle, void **listen_p);
    Result (*connect)(void *ctx, int device, void *handle, void **send_p, DeviceHandle **);
    Result (*accept)(void *listen, void **recv_p, DeviceHandle **);
    Result (*reg_mr)(void *comm, void *data, size_t bytes, int pointer, void **mr_p);
    Result (*reg_mr_dmabuf)(void *comm, void *data, size_t bytes, int pointer, uint64_t offset, int fd,
                            void **mr_p);
    Result (*dereg_mr)(void *comm, void *mr);
    Result (*isend)(void *send, void *data, size_t bytes, int tag, void *mr, void *profile, void **request_p);
    Result (*irecv)(void *recv, int n, void **data, size_t *bytes, int *tags, void **mrs, void **profiles,
                    void **request_p);
    Result (*iflush)(void *recv, int n, void **data, int *bytes, void **mrs, void **request_p);
    Result (*test)(void *request, int *done_p, int *bytes_p);
    Result (*close_send)(void *send);
    Result (*close_recv)(void *recv);
    Result (*close_listen)(void *listen);
    Result (*get_device_mr)(void *comm, void *mr, void **device_mr_p);
    Result (*irecv_consumed)(void *recv, int n, void *request);
    Result (*make_virtual)(int *device_p, void *properties);
    Result (*finalize)(void *ctx);
    Result (*set_attributes)(void *ctx, void *attributes);
};

// `connect`, `create_context` and `reg_mr_sym` are called by all ranks of a communicator, in the same order.
struct GinTable {
    const char *name;
    Result (*init)(void **ctx_p, uint64_t comm_id, Logger);
    Result (*devices)(int *count_p);
    Result (*get_properties)(int device, Properties *);
    Result (*listen)(void *ctx, int device, void *handle, void **listen_p);
    // ctx is null for a process' second communicator, as it is in finalize.
    Result (*connect)(void *ctx, void **handles, int nranks, int rank, void *listen, void **coll_p);
    Result (*create_context)(void *coll, int signals, int counters, void **context_p, DeviceHandle **);
    Result (*reg_mr_sym)(void *coll, void *data, size_t bytes, int pointer, uint64_t flags, void **mr_p,
                         void **device_mr_p);
    Result (*reg_mr_sym_dmabuf)(void *coll, void *data, size_t bytes, int pointer, uint64_t offset, int fd,
                                uint64_t flags, void **mr_p, void **device_mr_p);
    Result (*dereg_mr_sym)(void *coll, void *mr);
    Result (*destroy_context)(void *context);
    Result (*close_coll)(void *coll);
    Result (*close_listen)(void *listen);
    Result (*iput)(void *coll, uint64_t src_offset, void *src, size_t bytes, uint64_t dst_offset, void *dst,
                   uint32_t rank, void **request_p);
    Result (*iput_signal)(void *coll, uint64_t src_offset, void *src, size_t bytes, uint64_t dst_offset,
                          void *dst, uint32_t rank, uint64_t signal_offset, void *signal, uint64_t value,
                          uint32_t op, void **request_p);
    Result (*test)(void *coll, void *request, int *done_p);
    Result (*progress)(void *coll);
    Result (*query_last_error)(void *context, bool *error_p);
    Result (*finalize)(void *ctx);
};

// ---- what device code of GDAKI reads; keys and QP words are big-endian, addresses in WQEs are offsets ----

enum { NIC_HANDLER_GPU_DOORBELL = 2, MEMORY_GPU = 2, MEMORY_HOST = 1 };

struct Cq {
    void *cqe;
    uint32_t cqn, depth;
    void *dbrec; // never written
    uint64_t cons_idx;
    uint32_t mask;
    uint8_t cqe_bytes;
    uint64_t reserved;
    int memory;
};

struct Qp {
    uint64_t reserved_idx, ready_idx, prod_idx;
    uint32_t qpn, qpn_word;        // qpn << 8
    uint32_t qpn_be, qpn_ds_be[4]; // big-endian; with 1 to 4 segments
    int lock;
    uint16_t depth, mask; // a depth of 32768 at most
    void *sq, *dbrec, *doorbell;
    uint32_t rq_num;
    uint64_t rq_prod_idx;
    uint32_t rq_depth, rq_mask;
    void *rq, *rq_dbrec;
    uint32_t rq_wqe_bytes;
    uint64_t rq_reserved, rq_ready;
    int rq_lock;
    Cq cq, rq_cq;
    int nic_handler, memory;
};

struct MemHandle {
    uint32_t *rkeys; // by rank
    uint32_t lkey;
};
struct Table {
    uint64_t *words;
    uint32_t *rkeys; // by rank
    uint32_t lkey;
};
struct GdakiContext {
    Qp *qps, *companions; // by rank
    Table counters, signals;
    uint32_t sink_lkey;
};

#define AT(type, member, offset)                                                                             \
    static_assert(offsetof(type, member) == offset, #type "." #member " is where it was read")
AT(Properties, name, 0);
AT(Properties, pci_path, 8);
AT(Properties, guid, 16);
AT(Properties, pointers, 24);
AT(Properties, mr_is_global, 28);
AT(Properties, force_flush, 32);
AT(Properties, speed, 36);
AT(Properties, port, 40);
AT(Properties, latency, 44);
AT(Properties, max_comms, 48);
AT(Properties, max_recvs, 52);
AT(Properties, device_type, 56);
AT(Properties, device_version, 60);
AT(Properties, virtual_of, 64);
AT(Properties, max_p2p_bytes, 88);
AT(Properties, max_coll_bytes, 96);
AT(Properties, max_multi_request, 104);
static_assert(sizeof(Properties) == 112, "NCCL allocates it");
AT(DeviceHandle, type, 0);
AT(DeviceHandle, version, 4);
AT(DeviceHandle, handle, 8);
AT(DeviceHandle, bytes, 16);
AT(DeviceHandle, needs_progress, 24);
AT(NetTable, init, 8);
AT(NetTable, devices, 16);
AT(NetTable, get_properties, 24);
AT(NetTable, listen, 32);
AT(NetTable, connect, 40);
AT(NetTable, accept, 48);
AT(NetTable, reg_mr, 56);
AT(NetTable, reg_mr_dmabuf, 64);
AT(NetTable, dereg_mr, 72);
AT(NetTable, isend, 80);
AT(NetTable, irecv, 88);
AT(NetTable, iflush, 96);
AT(NetTable, test, 104);
AT(NetTable, close_send, 112);
AT(NetTable, close_recv, 120);
AT(NetTable, close_listen, 128);
AT(NetTable, get_device_mr, 136);
AT(NetTable, irecv_consumed, 144);
AT(NetTable, make_virtual, 152);
AT(NetTable, finalize, 160);
AT(NetTable, set_attributes, 168);
static_assert(sizeof(NetTable) == 176, "a name and 21 calls");
AT(GinTable, init, 8);
AT(GinTable, devices, 16);
AT(GinTable, get_properties, 24);
AT(GinTable, listen, 32);
AT(GinTable, connect, 40);
AT(GinTable, create_context, 48);
AT(GinTable, reg_mr_sym, 56);
AT(GinTable, reg_mr_sym_dmabuf, 64);
AT(GinTable, dereg_mr_sym, 72);
AT(GinTable, destroy_context, 80);
AT(GinTable, close_coll, 88);
AT(GinTable, close_listen, 96);
AT(GinTable, iput, 104);
AT(GinTable, iput_signal, 112);
AT(GinTable, test, 120);
AT(GinTable, progress, 128);
AT(GinTable, query_last_error, 136);
AT(GinTable, finalize, 144);
static_assert(sizeof(GinTable) == 152, "a name and 18 calls");
AT(Cq, cqn, 8);
AT(Cq, depth, 12);
AT(Cq, dbrec, 16);
AT(Cq, cons_idx, 24);
AT(Cq, mask, 32);
AT(Cq, cqe_bytes, 36);
AT(Cq, reserved, 40);
AT(Cq, memory, 48);
static_assert(sizeof(Cq) == 56, "it lies in a Qp twice");
AT(Qp, reserved_idx, 0);
AT(Qp, ready_idx, 8);
AT(Qp, prod_idx, 16);
AT(Qp, qpn, 24);
AT(Qp, qpn_word, 28);
AT(Qp, qpn_be, 32);
AT(Qp, qpn_ds_be, 36);
AT(Qp, lock, 52);
AT(Qp, depth, 56);
AT(Qp, mask, 58);
AT(Qp, sq, 64);
AT(Qp, dbrec, 72);
AT(Qp, doorbell, 80);
AT(Qp, cq, 160);
AT(Qp, rq_cq, 216);
AT(Qp, nic_handler, 272);
AT(Qp, memory, 276);
static_assert(sizeof(Qp) == 280, "device code steps over them");
AT(MemHandle, lkey, 8);
static_assert(sizeof(MemHandle) == 16, "keys of one region");
AT(GdakiContext, companions, 8);
AT(GdakiContext, counters, 16);
AT(GdakiContext, signals, 40);
AT(GdakiContext, sink_lkey, 64);
AT(Table, rkeys, 8);
AT(Table, lkey, 16);
static_assert(sizeof(GdakiContext) == 72, "all of a context");
#undef AT

} // namespace nccl_abi

#endif
