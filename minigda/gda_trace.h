// Reads a trace file of softnic (minigda/softnic/trace.c writes them and has the format), for replay.
#ifndef MINIGDA_GDA_TRACE_H
#define MINIGDA_GDA_TRACE_H

#include "minigda/softnic/softnic.h"

#include <string>
#include <vector>

struct gda_trace_qp {
    uint32_t qpn, cqn, peer, remote_qpn, depth, cq_depth;
};
struct gda_trace_region { // registered memory of the traced rank
    uint64_t va, bytes;
    uint32_t key, access;
};

struct gda_trace {
    uint32_t rank, ranks;
    bool real_time;
    uint64_t start_ns, lost;
    std::string profile;
    std::vector<gda_trace_qp> qps;
    std::vector<gda_trace_region> regions;
    std::vector<struct softnic_trace> records; // with the QPs' numbers, as the NIC had them
};

// 0, or -errno with one line in gic::error_text(): -EBADMSG for a file that is no whole trace.
int gda_trace_read(const char *path, gda_trace *trace_p);

// The records between the last two marks, the last run whose counters were read before and after; all of them
// when there are no two marks.
std::vector<struct softnic_trace> gda_trace_last_run(const gda_trace &trace);

#endif
