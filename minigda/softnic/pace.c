/* Pace: NIC profiles and the deadlines they give.
 *
 * One message-rate server and one link per NIC, both first come first served in the order WQEs are fetched.
 * A message (write, read, atomic) that was fetched at time f
 *     starts     s = max(f, rate free);          rate free = s + 1 / message_rate
 *     is sent    l = max(s, link free);          link free = l + (bytes + header) / bandwidth
 *     lands at   l + x + latency / 2, and its CQE is visible at l + x + latency,
 * x being the time on the link beyond that of an 8 B message. f is the visit that saw the doorbell plus
 * fetch_ns. A fenced WQE is not fetched before the responses of the QP's reads and atomics. NOP, WAIT and
 * DUMP stay in the NIC and take no time of their own. Nothing overtakes within a QP.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

static const struct softnic_profile profiles[] = {
    {.name = "none"},
    {
        .name = "cx7-200",
        /* arXiv:2610.01380, P-IB (ConnectX-7, 200 Gb/s). Table 5: 260 M msg/s with 64 QPs, the NIC's ceiling.
         */
        .message_rate = 260e6,
        /* Section on payload: best goodput 24.8 GB/s. */
        .bandwidth = 24.8e9,
        /* Put+completion 4.03 us = 0.70 issue + 3.30 doorbell to CQE + 0.03. It contains the WQE fetch. */
        .latency_ns = 3300,
        .fetch_ns = 0,
        /* 24.8 GB/s is goodput, so headers are paid for already. */
        .header_bytes = 0,
    },
    {
        /* No NIC's model, and not among the names: slow enough that a thread which looks too early finds that
         * out, whatever the scheduler does. For the conformance suite. */
        .name = "slow",
        .message_rate = 20e3,
        .bandwidth = 64e6,
        .latency_ns = 200000,
    },
};
enum { PROFILES = sizeof profiles / sizeof *profiles, NAMED = PROFILES - 1 };

int softnic_profile_find(const char *name, struct softnic_profile *profile_p) {
    for (int i = 0; name && i < PROFILES; i++)
        if (strcmp(name, profiles[i].name) == 0) {
            *profile_p = profiles[i];
            return 0;
        }
    return softnic_fail(-ENOENT, "unknown NIC profile \"%s\"; known: none, cx7-200", name ? name : "");
}

const char *const *softnic_profile_names(void) {
    static const char *names[NAMED + 1];
    for (int i = 0; i < NAMED; i++)
        names[i] = profiles[i].name;
    return names;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t link_ps(const struct softnic_profile *p, uint64_t bytes) {
    if (p->bandwidth <= 0)
        return 0;
    return (uint64_t)((double)(bytes + p->header_bytes) * 1e12 / p->bandwidth + 0.5);
}

static void message(struct softnic *nic, const struct wqe *wqe, uint64_t at_ps, struct pend *pend) {
    const struct softnic_profile *p = &nic->profile;
    uint64_t on_link = link_ps(p, wqe->bytes), small = link_ps(p, 8);
    lock_take(&nic->pace.lock);
    uint64_t start = later(at_ps, nic->pace.rate_free_ps);
    nic->pace.rate_free_ps = start + nic->message_ps;
    uint64_t sent = later(start, nic->pace.link_free_ps);
    nic->pace.link_free_ps = sent + on_link;
    lock_drop(&nic->pace.lock);
    sent += on_link > small ? on_link - small : 0;
    uint64_t latency_ps = p->latency_ns * PS_PER_NS;
    pend->land_ps = sent + latency_ps / 2;
    pend->done_ps = sent + latency_ps;
}

/* wqe: NULL for one that is going to fail. */
void pace_message(struct softnic *nic, struct qp *qp, const struct wqe *wqe, uint64_t fetched_ps,
                  struct pend *pend) {
    pend->land_ps = pend->done_ps = fetched_ps;
    int response = wqe && (wqe->action == WQE_READ || wqe->action == WQE_ATOMIC);
    if (wqe && (wqe->fm_ce_se & MLX5_CTRL_FENCE_MASK))
        pend->land_ps = pend->done_ps = fetched_ps = later(fetched_ps, qp->response_ps);
    if (response || (wqe && wqe->action == WQE_WRITE))
        message(nic, wqe, fetched_ps, pend);
    qp->last_land_ps = pend->land_ps = later(pend->land_ps, qp->last_land_ps);
    qp->last_done_ps = pend->done_ps = later(pend->done_ps, qp->last_done_ps);
    if (response)
        qp->response_ps = pend->done_ps;
}
