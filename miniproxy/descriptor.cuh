// The 16-byte descriptor that a device thread hands to a worker of the CPU proxy, and how it is published.
//
//             63           24  23   22      15  14      5  4   1   0
//   head      [ dst: 40      | top | len: 8   | peer: 10 | op: 4 | phase ]
//   tail      [ src: 40      |      length: 23                   | phase ]   put, get, fetch_add
//   tail      [ value: 63                                        | phase ]   value, signal, operand
//
// A ring has 2^n slots and each slot is written once per lap. Each half carries the parity of its lap, so a
// reader that sees the wanted parity in both halves has the two halves of one descriptor, in whatever order
// the two 8-byte stores reach it: a half can only be seen at the current lap or the one before (the reader
// has consumed the one before, and memory that one party writes is never seen to go back; the writer does not
// start the next lap before the reader has said that the slot is free). Nothing is cleared between laps.
//
// Two 8-byte stores, not one of 16 bytes, because that is what every machine keeps whole: x86-64 promises a
// 16-byte store to be single-copy atomic only on processors with AVX, aarch64 only with LSE2, and PCIe may
// split it.
//
// A value of 64 bits fits because `top` carries its bit 63. What does not fit one descriptor takes two slots
// in a row: a put with a signal is a put and a signal; a fetch_add is followed by its operand.
#ifndef MINIPROXY_DESCRIPTOR_CUH
#define MINIPROXY_DESCRIPTOR_CUH

#include "backends/abi/device.cuh"

namespace proxy {

struct alignas(16) Descriptor {
    uint64_t head, tail;
};
static_assert(sizeof(Descriptor) == 16, "four descriptors share a cache line");
static_assert(alignof(Descriptor) == 16, "a descriptor never straddles a cache line");
static_assert(offsetof(Descriptor, head) == 0 && offsetof(Descriptor, tail) == 8, "two 8-byte halves");

// Never 0: memory that nobody wrote is not an operation.
enum class Op : uint32_t {
    put = 1,       // dst: peer, src: mine
    get = 2,       // dst: mine, src: peer
    value = 3,     // dst: peer; the value's low `bytes` bytes
    signal = 4,    // dst: peer; value is added
    fetch_add = 5, // dst: peer, src: index of the result slot; an operand follows
    operand = 6,   // value: the addend of the fetch_add before
    fence = 7,     // what follows to this peer starts after what came before has been answered
};

constexpr unsigned PHASE_BITS = 1, OP_BITS = 4, PEER_BITS = 10, LEN_BITS = 8, TOP_BITS = 1, OFFSET_BITS = 40,
                   LENGTH_BITS = 23, VALUE_BITS = 63;
constexpr unsigned OP_SHIFT = PHASE_BITS, PEER_SHIFT = OP_SHIFT + OP_BITS, LEN_SHIFT = PEER_SHIFT + PEER_BITS,
                   TOP_SHIFT = LEN_SHIFT + LEN_BITS, OFFSET_SHIFT = TOP_SHIFT + TOP_BITS;
constexpr unsigned LENGTH_SHIFT = PHASE_BITS, VALUE_SHIFT = PHASE_BITS;
static_assert(OFFSET_SHIFT + OFFSET_BITS == 64, "the head is full");
static_assert(LENGTH_SHIFT + LENGTH_BITS == OFFSET_SHIFT, "both offsets lie at the same bit");
static_assert(VALUE_SHIFT + VALUE_BITS == 64, "the tail is full");

constexpr uint32_t MAX_PEERS = 1u << PEER_BITS;
constexpr uint64_t MAX_OFFSET = (uint64_t)1 << OFFSET_BITS; // exclusive
constexpr uint32_t MAX_BYTES = (uint32_t)1
                               << (LEN_BITS + LENGTH_BITS - 1); // inclusive; what one request moves

// A descriptor in clear.
struct Fields {
    Op op;
    uint32_t peer;
    uint64_t dst, src; // src: put, get, fetch_add
    uint32_t bytes;    // put, get, value
    uint64_t value;    // value, signal, operand
};

GIC_HD bool is_immediate(Op op) { return op == Op::value || op == Op::signal || op == Op::operand; }

// The parity that slot `index & (2^shift - 1)` carries in the lap that `index` belongs to; 1 in the first, so
// that zeroed memory is not valid.
GIC_HD uint64_t phase_of(uint64_t index, unsigned shift) { return ((index >> shift) & 1) ^ 1; }
GIC_HD uint64_t phase_of_low(uint32_t index, unsigned shift) {
    return ((index >> shift) & 1) ^ 1;
} // of its low half

// The caller has checked that every field fits. Both halves come back with phase 0.
GIC_HD Descriptor pack(const Fields &f) {
    uint64_t head = ((uint64_t)f.op << OP_SHIFT) | ((uint64_t)f.peer << PEER_SHIFT) | (f.dst << OFFSET_SHIFT);
    if (is_immediate(f.op))
        return Descriptor{head | ((uint64_t)f.bytes << LEN_SHIFT) | ((f.value >> VALUE_BITS) << TOP_SHIFT),
                          f.value << VALUE_SHIFT};
    uint64_t low = f.bytes & (((uint32_t)1 << LENGTH_BITS) - 1), high = f.bytes >> LENGTH_BITS;
    return Descriptor{head | (high << LEN_SHIFT), (f.src << OFFSET_SHIFT) | (low << LENGTH_SHIFT)};
}

GIC_HD Fields unpack(const Descriptor &d) {
    Fields f{};
    f.op = (Op)((d.head >> OP_SHIFT) & ((1u << OP_BITS) - 1));
    f.peer = (uint32_t)(d.head >> PEER_SHIFT) & (MAX_PEERS - 1);
    f.dst = d.head >> OFFSET_SHIFT;
    uint32_t len = (uint32_t)(d.head >> LEN_SHIFT) & ((1u << LEN_BITS) - 1);
    if (is_immediate(f.op)) {
        f.bytes = len;
        f.value = (d.tail >> VALUE_SHIFT) | (((d.head >> TOP_SHIFT) & 1) << VALUE_BITS);
    } else {
        f.src = d.tail >> OFFSET_SHIFT;
        f.bytes =
            (len << LENGTH_BITS) | ((uint32_t)(d.tail >> LENGTH_SHIFT) & (((uint32_t)1 << LENGTH_BITS) - 1));
    }
    return f;
}

enum class Handoff { baseline, tuned };

// Device side: hand the descriptor over. What this thread wrote before (a put's payload) is visible to the
// worker, and so to the NIC, that sees the descriptor.
//
// Baseline pays a full fence at system scope, the classical way. Tuned is two posted stores: the release of
// the second orders the payload; nothing orders the first, which the phases make up for.
//
// A GPU's release at system scope waits until the host has all earlier stores, two thirds of what baseline costs.
// With `posted` tuned leaves it out there: one 16-byte store, and the payload's order is the kernel's to see to.
template <Handoff F>
GIC_DEVICE void publish(Descriptor *slot, Descriptor d, uint64_t phase, bool posted = false) {
    if constexpr (F == Handoff::baseline) {
        gic::store_relaxed(&slot->tail, d.tail | phase);
        gic::fence_seq_cst<gic::Scope::system>();
        gic::store_relaxed(&slot->head, d.head | phase);
        return;
    }
#if defined(__CUDACC__)
    if (!posted)
        gic::fence_acq_rel<gic::Scope::system>();
    asm volatile("st.relaxed.sys.v2.u64 [%0], {%1, %2};" ::"l"(slot), "l"(d.head | phase), "l"(d.tail | phase)
                 : "memory");
#else
    (void)posted; // a release store costs nothing here
    gic::store_relaxed(&slot->tail, d.tail | phase);
    gic::store_release(&slot->head, d.head | phase);
#endif
}

// The same, tuned, if `go`: on a GPU the store carries the condition.
template <Handoff F>
GIC_DEVICE void publish_if(bool go, Descriptor *slot, Descriptor d, uint64_t phase, bool posted) {
    static_assert(F == Handoff::tuned, "baseline stores more than once");
#if defined(__CUDACC__)
    if (!posted)
        gic::fence_acq_rel<gic::Scope::system>();
    asm volatile("{\n\t.reg .pred go;\n\tsetp.ne.u32 go, %0, 0;\n\t"
                 "@go st.relaxed.sys.v2.u64 [%1], {%2, %3};\n\t}" ::"r"((uint32_t)go),
                 "l"(slot), "l"(d.head | phase), "l"(d.tail | phase)
                 : "memory");
#else
    if (go)
        publish<F>(slot, d, phase, posted);
#endif
}

#if !defined(__CUDACC__)
// Worker side: take the descriptor if both halves belong to this lap.
inline bool take(const Descriptor *slot, uint64_t phase, Descriptor *d_p) {
    d_p->head = gic::load_acquire(&slot->head);
    if ((d_p->head & 1) != phase)
        return false;
    d_p->tail = gic::load_acquire(&slot->tail);
    return (d_p->tail & 1) == phase;
}
#endif

} // namespace proxy

#endif
