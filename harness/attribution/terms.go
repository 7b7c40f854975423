package attribution

import (
	"fmt"
	"slices"
	"strings"
)

// Name is the name of a term, as it stands in output and in records.
type Name string

// The terms.
const (
	Ordering         Name = "ordering"
	CompletionScope  Name = "completion-scope"
	DoorbellBatching Name = "doorbell-batching"
	QueueSharing     Name = "queue-sharing"
	QueueManagement  Name = "queue-management"
	Placement        Name = "placement"
	PayloadMovement  Name = "payload-movement"
	SignalProtocol   Name = "signal-protocol"
	DoorbellPath     Name = "doorbell-path"
	ProxyHandoff     Name = "proxy-handoff"
	ProxyWorker      Name = "proxy-worker"
	SMClock          Name = "sm-clock"
	ConnectionState  Name = "connection-state"
	Algorithm        Name = "algorithm"
	Wire             Name = "wire"
	Residual         Name = "residual"
)

// Key is a configuration key of a floor.
type Key struct{ Backend, Name string }

func (k Key) String() string { return k.Backend + ":" + k.Name }

// Term is one word of the vocabulary. The texts are what `gic attribute --terms` and docs/attribution.md say.
type Term struct {
	Name       Name
	Title      string
	Definition string // what costs time
	Measured   string // how the number comes about
	Floor      []Key  // the floor's keys that express it; none where the floors cannot
	FloorNote  string // what stands where no key does, or beside the keys
	NotClaimed string // where it may not be claimed
}

// Terms is the vocabulary, in the order of a post from the device to the wire and back.
func Terms() []Term { return slices.Clone(terms) }

// TermOf finds a term by its name.
func TermOf(name Name) (Term, error) {
	i := slices.IndexFunc(terms, func(t Term) bool { return t.Name == name })
	if i < 0 {
		return Term{}, fmt.Errorf("term %q is not one of %s", name, strings.Join(Names(), ", "))
	}
	return terms[i], nil
}

// Names lists the terms' names.
func Names() []string {
	var out []string
	for _, t := range terms {
		out = append(out, string(t.Name))
	}
	return out
}

// termOfKey is the term that a floor's key expresses; "" for a key that is a resource or a size.
func termOfKey(backend, key string) Name {
	for _, t := range terms {
		if slices.Contains(t.Floor, Key{backend, key}) {
			return t.Name
		}
	}
	return ""
}

var terms = []Term{
	{
		Name: Ordering, Title: "ordering",
		Definition: "What makes the work request visible to the NIC before the doorbell that announces it: fences and releases between WQE, " +
			"doorbell record and doorbell, by their scope and number. Without a NIC: what puts the flag behind its payload.",
		Measured: "Two rows that differ in the order alone, in issue time. A library's own order is taken from its source; where the " +
			"library can be run with another order, that difference is shown beside the floor's.",
		Floor: []Key{{"minigda", "order"}, {"rawstore", "order"}},
		NotClaimed: "With device=host: release ordering is free on x86. From order=none: that row is unsafe and only bounds the term. In " +
			"completion times of a software NIC, which is another observer than a NIC on PCIe.",
	},
	{
		Name: QueueSharing, Title: "queue sharing and publication",
		Definition: "Several device threads post to one queue: reserving slots, publishing them in order, a lock around the doorbell, and " +
			"waiting for each other. For a proxy: several producers on one ring.",
		Measured: "Rows that differ in the sharing of the queue alone, at equal threads and equal queues.",
		Floor:    []Key{{"minigda", "sharing"}, {"miniproxy", "ring_mode"}},
		NotClaimed: "From one thread for many: an uncontended lock costs what one atomic costs, a contended one what the others take. From " +
			"oversubscribed rows, where waiting threads are not running.",
	},
	{
		Name: QueueManagement, Title: "queue management",
		Definition: "Finding the queue of a peer, its keys and address, counting its slots and keeping its indices, beyond the store that " +
			"takes a slot of a private queue.",
		Measured: "By elimination, where every other documented difference has a number and the library's source shows this work on the " +
			"path; the replay bounds it from above (it does none of it).",
		FloorNote: "none: the floors keep one index in a register and have no table to look up",
		NotClaimed: "As long as another documented difference has no number at this point. It is a reading of the residual, not a " +
			"measurement of its own.",
	},
	{
		Name: DoorbellBatching, Title: "doorbell batching",
		Definition: "How many WQEs one doorbell announces. The cost of ordering, doorbell record and doorbell is divided by it; a message " +
			"that waits for its batch pays in latency.",
		Measured: "Rows that differ in the batch alone; the cost per message is a + d/B, with a the work request and d the ordered doorbell.",
		Floor:    []Key{{"minigda", "batch"}, {"miniproxy", "batch"}},
		NotClaimed: "From counters of a backend whose batch adapts to load: those are timed, not exact. For a single operation, where a " +
			"batch of more than one only waits.",
	},
	{
		Name: Placement, Title: "payload placement",
		Definition: "Payload in the WQE (inline) or behind a pointer that the NIC reads; queues and payload in GPU or in host memory. For a " +
			"proxy: where the counter lies that tells completion.",
		Measured: "Rows that differ in the placement alone, per size: inline saves a read by the NIC and costs stores by the device.",
		Floor: []Key{
			{"minigda", "inline"}, {"miniproxy", "inline"}, {"miniproxy", "counter"}, {"minigda", "queue"},
		},
		NotClaimed: "Beyond the size at which the saving is gone (92 B on the paper's machine). From a software NIC, whose reads are loads of a " +
			"thread and not PCIe transactions.",
	},
	{
		Name: PayloadMovement, Title: "payload movement",
		Definition: "Who moves the payload where GPUs load and store at each other: one lane, the lanes of a warp or a block, or bulk copies " +
			"through shared memory.",
		Measured: "Rows of the floor without a NIC that differ in the copy or in the acting group alone, per size.",
		Floor:    []Key{{"rawstore", "copy"}, {"rawstore", "scope"}},
		NotClaimed: "Where a NIC moves the payload. Between rows whose groups have unequal numbers of lanes in all, where the number of lanes is " +
			"compared.",
	},
	{
		Name: DoorbellPath, Title: "doorbell path",
		Definition: "Who rings: the GPU with a store to the NIC's register, or a host thread that forwards the doorbell of a GPU-built work " +
			"request. Also how often it rings for one post.",
		Measured:  "Rows that differ in the path alone; for extra doorbells counts times the cost of one.",
		Floor:     []Key{{"minigda", "doorbell"}},
		FloorNote: "the number of doorbells per post is fixed at one: more are seen in the counters",
		NotClaimed: "On a software NIC whose doorbell is ordinary memory, for anything but the store itself. From asked configuration: " +
			"libraries fall back silently, the record says which path was created.",
	},
	{
		Name: CompletionScope, Title: "completion scope",
		Definition: "What a completion call waits for: one queue, one peer, or all queues of the process. Each queue costs a poll, and the " +
			"slowest one is waited for.",
		Measured: "Rows that differ in the scope alone, over the number of queues that were created (not asked for).",
		Floor:    []Key{{"minigda", "scope"}},
		NotClaimed: "Between unequal numbers of created queues. In issue times: nothing completes there. As a waste: a wider scope can be what " +
			"the caller's model demands.",
	},
	{
		Name: SignalProtocol, Title: "signal protocol",
		Definition: "How the receiver learns that data has arrived: a polled data word, a second write, an atomic to a counter behind the " +
			"data, and what the receiver does to see the payload afterwards.",
		Measured:  "Rows of op=put, op=put_signal and op=atomic of one stack, and the WQEs per operation that the NIC counted.",
		Floor:     []Key{{"rawstore", "wait"}},
		FloorNote: "over a NIC none: the workload asks for put, put_signal or atomic, and each stack's adapter says what its own call becomes",
		NotClaimed: "From round trips across stacks as a difference of links: each uses its own cheapest notification, so that they compare " +
			"protocols.",
	},
	{
		Name: ProxyHandoff, Title: "proxy hand-off",
		Definition: "What the device does to give a request to a CPU: reserving a slot, reading the consumer's progress over PCIe, ordering, " +
			"and the stores of the descriptor.",
		Measured:   "The issue time of a proxy row, which is its enqueue alone; rows that differ in the hand-off.",
		Floor:      []Key{{"miniproxy", "handoff"}, {"miniproxy", "payload"}},
		NotClaimed: "In completion times, where the worker's polling overlaps with it.",
	},
	{
		Name: ProxyWorker, Title: "proxy worker state",
		Definition: "What the CPU worker takes from seeing a descriptor to ringing the doorbell: polling many rings, posting, chaining, and " +
			"whether its core runs at idle or at full clock.",
		Measured:   "Rows that differ in the workers, in the batch of the worker, or in the state of the CPU (cold after idle, warm under load).",
		Floor:      []Key{{"miniproxy", "workers"}},
		NotClaimed: "Without the CPU's frequency in the record. From oversubscribed rows: there the scheduler is measured.",
	},
	{
		Name: SMClock, Title: "SM clock",
		Definition: "The part of a time that scales with the clock of the multiprocessor: T(f) = C/f + B. A library with more instructions per " +
			"post loses more when the clock falls.",
		Measured:   "A fit of C and B over runs at several clocks; within one run only a check that the clock did not move.",
		FloorNote:  "none: a state of the machine, in every record",
		NotClaimed: "Outside the clocks of the fit. Between rows whose clocks the records do not hold.",
	},
	{
		Name: ConnectionState, Title: "connection state",
		Definition: "What a NIC loses when more connections are active than it keeps close: by role (send, receive, both) and by how much is " +
			"sent before the next connection's turn.",
		Measured:  "Rows over the number of active connections at one role and one burst.",
		Floor:     []Key{{"minigda", "transport"}},
		FloorNote: "otherwise qps, which is a resource: rows of unequal numbers are not subtracted",
		NotClaimed: "On a software NIC without a model of it. As to the cause (context cache, packet processing, back-pressure): the " +
			"published evidence does not separate them. Without the role.",
	},
	{
		Name: Algorithm, Title: "algorithm",
		Definition: "How many messages the same work becomes: one per token and expert, or one per token and rank, with or without flags.",
		Measured: "Messages and bytes per operation from the record's counters, times the cost of a message; the layout axis of moe does " +
			"either on any stack.",
		FloorNote:  "none: an axis of the workload (layout)",
		NotClaimed: "Between rows of different routing: the record holds its hash.",
	},
	{
		Name: Wire, Title: "wire and NIC",
		Definition: "From the doorbell to the CQE: NIC, link, remote memory. The same for every stack that asks the same of the NIC.",
		Measured:   "Completion time minus issue time of the floor; a published doorbell-to-CQE time where there is one.",
		FloorNote:  "none: it is what remains of the floor, and is never part of a gap between stacks that ask the same",
		NotClaimed: "On softnic, ever: nic=soft has no wire.",
	},
	{
		Name: Residual, Title: "residual (library code)",
		Definition: "What none of the other terms explains. It is always printed, and may be negative: then the terms explain too much, and at " +
			"least one of them does not carry over into the library.",
		Measured: "The gap minus all terms. By the replay independently: the library's time minus that of its own NIC trace, posted by the " +
			"minimal path.",
		FloorNote: "none, by definition",
		NotClaimed: "As the library's fault: it holds interactions of the terms, what our floors cannot express, and every documented choice " +
			"that has no measured rung, which are listed beside it.",
	},
}
