// What libnvshmem_host and a transport plugin say to each other.
//
// NVSHMEM keeps this struct in a header that its packages do not install. It is restated here as it lies in memory
// (x86-64, plugin interface 3.0: what NVSHMEM 3.4.5 offers), from a reading of the published source and a run that
// logged every call; every offset is asserted, so that an edit cannot move one by accident. The handle's size and the
// device state, which are in the installed headers, are not restated: queues.h includes those, and
// transport_test.cc compares.
//
// The library writes into the struct: a plugin allocates it zeroed, fills it in nvshmemt_init, and finds heap_base,
// log2_granularity, pe, npes, index and shared valid from connect_endpoints on.
#ifndef BACKENDS_NVSHMEM_TRANSPORT_ABI_H
#define BACKENDS_NVSHMEM_TRANSPORT_ABI_H

#include <stddef.h>
#include <stdint.h>

namespace nvshmem_abi {

constexpr int plugin_interface = 30000; // what nvshmemt_init is called with; the first digit must be equal

enum Type : int { TYPE_IBGDA = 1 };     // Transport.type
enum Attribute : int { CONNECTED = 2 }; // Transport.attributes: endpoints are connected before use
enum Reach : int {                      // what can_reach_peer answers
    CPU_WRITE = 1 << 4,
    CPU_READ = 1 << 5,
    CPU_ATOMICS = 1 << 6,
    GPU_WRITE = 1 << 7,
    GPU_READ = 1 << 8,
    GPU_ATOMICS = 1 << 9,
};

// Of one region, as its owner describes it to the peers; opaque to the library.
struct Handle {
    char bytes[512];
};

struct Transport;

// What rma and amo are given. By value on the stack: their sizes are asserted too.
struct RmaVerb {
    int what; // nvshmemi_op_t
    int is_nbi, is_stream;
    void *stream;
};
struct Memory {
    void *addr;      // at its owner
    uint64_t offset; // in the heap
    Handle *handle;  // of the region it lies in; a p's value has none
};
struct RmaBytes {
    size_t elements;
    int element_bytes;
    ptrdiff_t source_stride, target_stride;
};
struct AmoVerb {
    int what; // nvshmemi_amo_t
    int is_fetch, is_value, is_compare;
};
struct Atomic {
    Memory remote;
    uint64_t result_flag; // stored behind *result when that is there
    void *result;         // of a fetching one: two words, the value and the flag
    void *value_at, *compare_at;
    uint64_t value, compare;
    Handle *result_handle;
};
struct AmoBytes {
    int type, element_bytes;
};
static_assert(sizeof(RmaVerb) == 24 && sizeof(Memory) == 24 && sizeof(RmaBytes) == 32 &&
                  sizeof(AmoVerb) == 16 && sizeof(Atomic) == 80 && sizeof(AmoBytes) == 8,
              "as they were read");
static_assert(offsetof(Atomic, result_flag) == 24 && offsetof(Atomic, result) == 32 &&
                  offsetof(Atomic, value) == 56 && offsetof(Atomic, result_handle) == 72,
              "as they were read");

// 0 is success, anything else ends NVSHMEM's init. A null member is "has none", which the library asks for before it
// calls fence, quiet and the like.
struct Operations {
    int (*can_reach_peer)(int *reach_p, void *peer, Transport *t);
    int (*connect_endpoints)(Transport *t, int *selected, int count);
    int (*get_mem_handle)(Handle *handle, void *addr, size_t bytes, Transport *t, bool local_only);
    int (*release_mem_handle)(Handle *handle, Transport *t);
    int (*finalize)(Transport *t);
    int (*show_info)(Transport *t, int style);
    int (*progress)(Transport *t);
    int (*rma)(Transport *t, int pe, RmaVerb verb, Memory *remote, Memory *local, RmaBytes bytes,
               int is_proxy);
    int (*amo)(Transport *t, int pe, void *unused, AmoVerb verb, Atomic *atomic, AmoBytes bytes,
               int is_proxy);
    int (*fence)(Transport *t, int pe, int is_proxy);
    int (*quiet)(Transport *t, int pe, int is_proxy);
    int (*enforce_cst)(Transport *t);
    int (*enforce_cst_at_target)(Transport *t);
    // handles[pe * stride + t->index] describes [heap_offset, heap_offset + bytes) of every PE's heap.
    int (*add_device_remote_mem_handles)(Transport *t, int stride, Handle *handles, uint64_t heap_offset,
                                         size_t bytes);
};

struct Transport {
    int interface; // plugin_interface
    int type;
    int *reach; // of every PE, the library's
    Operations operations;
    void *bootstrap;
    void *state;  // the plugin's own
    void *shared; // nvshmemi_ibgda_device_state_t; the library copies it to its device symbols
    void *cache;
    char **device_paths; // of n_devices
    int attributes;
    int n_devices;
    bool atomics_complete_on_quiet, is_successfully_initialized, no_proxy;
    void *heap_base; // of this PE
    size_t log2_granularity;
    uint64_t max_operation_bytes;
    uint32_t host_endian_atomics_from; // bytes
    int index, pe, npes;
    void *alias_map, *egm_map;
};

#define AT(member, offset)                                                                                   \
    static_assert(offsetof(Transport, member) == offset, #member " is where it was read")
AT(interface, 0);
AT(type, 4);
AT(reach, 8);
AT(operations, 16);
AT(operations.can_reach_peer, 16);
AT(operations.connect_endpoints, 24);
AT(operations.get_mem_handle, 32);
AT(operations.release_mem_handle, 40);
AT(operations.finalize, 48);
AT(operations.show_info, 56);
AT(operations.progress, 64);
AT(operations.rma, 72);
AT(operations.amo, 80);
AT(operations.fence, 88);
AT(operations.quiet, 96);
AT(operations.enforce_cst, 104);
AT(operations.enforce_cst_at_target, 112);
AT(operations.add_device_remote_mem_handles, 120);
AT(bootstrap, 128);
AT(state, 136);
AT(shared, 144);
AT(cache, 152);
AT(device_paths, 160);
AT(attributes, 168);
AT(n_devices, 172);
AT(atomics_complete_on_quiet, 176);
AT(is_successfully_initialized, 177);
AT(no_proxy, 178);
AT(heap_base, 184);
AT(log2_granularity, 192);
AT(max_operation_bytes, 200);
AT(host_endian_atomics_from, 208);
AT(index, 212);
AT(pe, 216);
AT(npes, 220);
AT(alias_map, 224);
AT(egm_map, 232);
#undef AT
static_assert(sizeof(Transport) == 240, "the library looks no further");

} // namespace nvshmem_abi

#endif
