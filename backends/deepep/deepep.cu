// DeepEP as a backend: an installed deep_ep, driven by the user's own Python inside the rank process. It takes part in the
// workload moe with whole operations. Nothing of Python, torch, CUDA or DeepEP is needed to build this or linked to it.
//
// python.h has the interpreter; adapter.py and the files beside it, which the plugin carries, have what is done with
// deep_ep. This file has the session: configuration, environment, window, series, and with nic=soft the NIC.
#include "backends/abi/probe.h"
#include "backends/abi/ranks.h"
#include "backends/deepep/python.h"
#include "backends/nvshmem/transport.h"

#include <dlfcn.h>

namespace {

using deepep::Interpreter;
using deepep::Python;

const struct gic_key keys[] = {
    {"library", "installed", "installed|double",
     "the deep_ep of the active Python environment, or a test double in plain Python (device=host)"},
    {"mode", "auto", "auto|ll|normal|v2",
     "low_latency_dispatch, dispatch, or ElasticBuffer; auto: ll with layout=expert, normal with "
     "layout=rank"},
    {"dispatch", "bf16", "bf16|fp8", "format of rows on their way to the experts; the way back is bf16"},
    {"max_tokens", "128", "1..4096", "tokens per rank that the buffer is laid out for (mode=ll, v2)"},
    {"sms", "20", "2..128", "multiprocessors that mode=normal and v2 take, an even number"},
    {"fault", "none", "none|import|constructor|exit|routing|row|count|source|gate|trap|hang",
     "for tests, with library=double: what goes wrong on the last rank"},
};
constexpr uint32_t key_count = sizeof keys / sizeof *keys;

bool is_double(const gic::Config &c) { return strcmp(c.text("library"), "double") == 0; }

const char *path_of(const struct gic_open *open) {
    return strcmp(open->nic, "none") == 0 ? "nvlink" : strcmp(open->nic, "soft") == 0 ? "softnic" : "mlx5";
}

// Keys against each other and against nic. No look at the machine.
int check_keys(const struct gic_open *open) {
    gic::Config c(keys, key_count, open);
    if (int rc = c.check())
        return rc;
    if (c.u32("sms") % 2)
        return gic::fail(-EINVAL, "sms=%s: want an even number", c.text("sms"));
    if (!is_double(c) && strcmp(c.text("fault"), "none") != 0)
        return gic::fail(-EINVAL, "fault=%s: only with library=double", c.text("fault"));
    if (is_double(c)) {
        if (strcmp(open->device, "host") != 0)
            return gic::fail(-ENOTSUP, "library=double runs without a GPU: --device host");
        if (strcmp(open->nic, "none") != 0)
            return gic::fail(-ENOTSUP, "library=double has no NIC: --nic none");
    }
    return 0;
}

// What a NIC asks of the other choices; said after what is missing on the machine.
int check_nic(const gic::Config &c, const struct gic_open *open) {
    if (strcmp(open->nic, "none") == 0)
        return 0;
    for (const char *mode : {"normal", "v2"})
        if (strcmp(c.text("mode"), mode) == 0)
            return gic::fail(-ENOTSUP, "mode=%s moves rows over NVLink here: --nic none", mode);
    const char *engine = gic::kv_find(open->nic_config, open->nic_config_count, "engine");
    if (strcmp(open->nic, "soft") == 0 && (!engine || strcmp(engine, "gpu") != 0))
        return gic::fail(
            -ENOTSUP,
            "engine=%s: DeepEP orders its work requests for the GPU alone, so that only a NIC with "
            "queues in GPU memory can serve them: --nic soft:engine=gpu",
            engine ? engine : "cpu");
    return 0;
}

// "2.28.9", "2.28.9.post1" or "2.28.9+x"; zeros for what is no version.
gic::Version version_of(const std::string &text) {
    gic::Version v = {0, 0, 0};
    sscanf(text.c_str(), "%d.%d.%d", &v.major, &v.minor, &v.patch);
    return v;
}

// What the interpreter can import, without importing it.
int check_packages(const gic::Config &c, const struct gic_open *open, const Python &p) {
    const char *who = p.executable.c_str();
    if (p.get("torch").empty())
        return gic::fail(-ENOTSUP,
                         "PyTorch not found by %s: activate the Python environment that has torch and "
                         "deep_ep, or set GIC_PYTHON to its interpreter",
                         who);
    if (p.get("deep_ep").empty())
        return gic::fail(-ENOTSUP,
                         "DeepEP not found (Python package deep_ep) by %s: install it into that "
                         "environment, from its own repository or as a package, or set GIC_PYTHON",
                         who);
    const char *version = p.get("deep_ep").c_str();
    const std::string mode = c.text("mode"), nccl = p.get("nccl"), nvshmem = p.get("nvshmem");
    const bool elastic = !p.get("deep_ep.elastic").empty();
    if (mode == "v2") {
        if (!elastic)
            return gic::fail(-ENOTSUP, "deep_ep %s has no ElasticBuffer: mode=v2 wants DeepEP 2",
                             p.get("deep_ep").c_str());
        const gic::Version low = {2, 30, 4};
        if (!nccl.empty() && version_of(nccl) < low)
            return gic::fail(-ENOTSUP, "NCCL %s is too old for mode=v2: want at least %s", nccl.c_str(),
                             low.text().c_str());
        return 0;
    }
    if (p.get("deep_ep.buffer").empty())
        return gic::fail(-ENOTSUP, "deep_ep %s has no Buffer: mode=%s wants one, DeepEP 1 and 2 have it",
                         version, mode.c_str());
    // NVSHMEM moved the array of queue pairs; DeepEP 1 follows it, the same code in DeepEP 2 does not.
    const gic::Version moved = {3, 5, 19};
    if (elastic && strcmp(open->nic, "none") != 0 && !nvshmem.empty() && !(version_of(nvshmem) < moved))
        return gic::fail(-ENOTSUP,
                         "NVSHMEM %s is too new for mode=ll of deep_ep %s over a NIC: want below %s",
                         nvshmem.c_str(), p.get("deep_ep").c_str(), moved.text().c_str());
    return 0;
}

// The answer about the interpreter, once per process.
int the_python(const Python **python_p) {
    static Python python;
    static bool known = false;
    if (!known)
        if (int rc = deepep::find_python(&python))
            return rc;
    known = true;
    *python_p = &python;
    return 0;
}

int check(const struct gic_open *open) {
    if (int rc = check_keys(open))
        return rc;
    const gic::Config c(keys, key_count, open);
    if (!is_double(c))
        if (int rc = gic::probe_cuda("deepep", open->device))
            return rc;
    const Python *python = nullptr;
    if (int rc = the_python(&python))
        return rc;
    if (is_double(c))
        return 0;
    if (int rc = check_packages(c, open, *python))
        return rc;
    return check_nic(c, open);
}

} // namespace

struct gic_session {
    uint32_t rank = 0, nranks = 0;
    gic::Ranks ranks{}; // over the copy of comm
    struct gic_comm comm {};
    deepep::Watch watch{};
    Interpreter *interpreter = nullptr;
    const struct gic_nvshmem_transport *transport = nullptr; // prepared
    std::map<std::string, std::string> texts;                // what Python may ask for by name
    std::vector<uint8_t> window;
    bool has_window = false;
    bool opened = false, unclean = false; // of the Python half: some call failed
    std::map<std::string, uint64_t> setup,
        before; // of the NIC's counters: not of any workload; at the begin of one
    gic::Results results;
    gic::Facts facts, point_facts, all_facts; // of the session, of its latest run, and both
    gic::Counters counters;
};

namespace {

// What one call of the Python half sees.
class SessionCall final : public deepep::Call {
  public:
    SessionCall(gic_session *s, const struct gic_run *run) : s_(s), run_(run) {}
    void series(const char *name, const char *unit, const double *values, size_t count) override {
        s_->results.add(name, unit, std::vector<double>(values, values + count));
    }
    void fact(const char *key, const char *value) override {
        (run_ ? s_->point_facts : s_->facts).set(key, std::string(value));
    }
    const char *text(const char *name) override {
        if (run_ && strncmp(name, "arg.", 4) == 0)
            return gic::kv_find(run_->args, run_->arg_count, name + 4);
        auto it = s_->texts.find(name);
        return it == s_->texts.end() ? nullptr : it->second.c_str();
    }
    const void *blob(const char *name, size_t *bytes_p) override {
        for (uint32_t i = 0; run_ && i < run_->blob_count; i++)
            if (strcmp(run_->blobs[i].name, name) == 0) {
                *bytes_p = run_->blobs[i].bytes;
                return run_->blobs[i].data;
            }
        return nullptr;
    }
    void *window(uint64_t *bytes_p) override {
        *bytes_p = s_->window.size();
        return s_->window.data();
    }
    void setup(bool begin) override;

  private:
    gic_session *s_;
    const struct gic_run *run_;
};

int call(gic_session *s, const char *name, const struct gic_run *run = nullptr) {
    deepep::Watch watch = s->watch;
    if (!run) // imports are no device spin, and take what they take
        watch.timeout_ns = std::max<uint64_t>(watch.timeout_ns, 60000000000u);
    const int rc = s->interpreter->call(name, std::make_shared<SessionCall>(s, run), watch);
    s->unclean |= rc != 0 && rc != -ENOTSUP;
    return rc;
}

// The NIC's own count of everything since it was made.
int raw_counters(gic_session *s, std::map<std::string, uint64_t> *out, gic::Counters *list) {
    const struct gic_counter *counters;
    uint32_t n;
    if (int rc = s->transport->counters(&counters, &n))
        return gic::fail(rc, "%s", s->transport->last_error());
    for (uint32_t i = 0; i < n; i++) {
        (*out)[counters[i].name] = counters[i].value;
        if (list)
            list->add(counters[i].name, counters[i].unit, counters[i].value - s->setup[counters[i].name],
                      counters[i].exact);
    }
    return 0;
}

// Init, barriers and teardown of NVSHMEM post too: they are subtracted, and their number is a fact.
void SessionCall::setup(bool begin) {
    if (!s_->transport)
        return;
    std::map<std::string, uint64_t> now;
    if (raw_counters(s_, &now, nullptr) != 0)
        return; // counters() will say it
    if (begin) {
        s_->before = now;
        return;
    }
    for (const auto &c : now)
        s_->setup[c.first] += c.second - s_->before[c.first];
    s_->facts.set("setup_wqes", s_->setup["wqes"]);
}

void set_environment(const struct gic_open *open) {
    // Code that is loaded at its first launch waits for the device, on which a kernel may be waiting for it.
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setenv("NVSHMEM_DISABLE_NVLS", "1", 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    if (strcmp(open->nic, "none") == 0 || strcmp(open->nic, "soft") == 0) {
        setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 1);
        setenv("NVSHMEM_DISABLE_GDRCOPY", "1", 1);
        setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo", 0); // one host
        setenv("EP_DISABLE_GIN", "1", 1);                     // DeepEP 2 asks for a NIC otherwise
        if (strcmp(open->nic, "soft") == 0)
            setenv("NVSHMEM_DISABLE_CUDA_VMM", "1",
                   1); // the heap in one piece, which softnic of a peer can open
    } else {
        setenv("NVSHMEM_HCA_LIST", (std::string(open->nic) + ":1").c_str(), 0);
    }
}

constexpr const char *transport_file = "nvshmem_transport_ibgda.so.3"; // of backends/nvshmem

// The SONAME of the transport is that of the vendor's file: NVSHMEM's own dlopen then finds ours. Never closed.
int load_transport(const struct gic_nvshmem_transport **transport_p) {
    Dl_info info;
    std::string path = dladdr((const void *)&load_transport, &info) && info.dli_fname ? info.dli_fname : "";
    path = path.substr(0, path.rfind('/') + 1);
    // In build/ the plugin lies above what was compiled with CUDA.
    const std::string places[] = {path + transport_file, path + "cuda/" + transport_file};
    for (const std::string &place : places) {
        if (access(place.c_str(), R_OK) != 0)
            continue;
        void *lib = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (!lib)
            return gic::fail(-ENOTSUP, "the transport does not load: %s", dlerror());
        auto *t = static_cast<const struct gic_nvshmem_transport *>(dlsym(lib, GIC_NVSHMEM_TRANSPORT_SYMBOL));
        if (!t || t->struct_size != sizeof *t)
            return gic::fail(-ENOTSUP, "%s is not of this build", place.c_str());
        *transport_p = t;
        return 0;
    }
    return gic::fail(-ENOTSUP,
                     "no software NIC for NVSHMEM: %s is not beside the plugin (make cuda builds it)",
                     transport_file);
}

int prepare_transport(gic_session *s, const struct gic_open *open) {
    const struct gic_nvshmem_transport *t = nullptr;
    if (int rc = s->ranks.agree(load_transport(&t), "load the transport"))
        return rc;
    if (int rc = t->prepare(open))
        return gic::fail(rc, "%s", t->last_error());
    s->transport = t;
    return 0;
}

void close_session(struct gic_session *s) {
    if (!s)
        return;
    if (s->opened) {
        // Buffers are destroyed by all ranks together, over the same path. Where a call has failed the process ends
        // soon, and all that it holds with it.
        std::vector<uint8_t> all(s->nranks);
        const uint8_t mine = s->unclean;
        bool clean = s->ranks.gather(&mine, all.data(), 1, "the end") == 0;
        for (uint8_t unclean : all)
            clean = clean && !unclean;
        if (clean)
            call(s, "close");
    }
    if (s->transport)
        s->transport->release();
    if (s->unclean)
        (void)new std::vector<uint8_t>(
            std::move(s->window)); // a call that was given up may still write to it
    delete s;
}

void fill_texts(gic_session *s, const struct gic_open *open, const Python &python) {
    auto &t = s->texts;
    const gic::Config c(keys, key_count, open);
    for (const struct gic_key &k : keys)
        t[std::string("config.") + k.name] = c.text(k.name);
    t["rank"] = std::to_string(open->rank);
    t["nranks"] = std::to_string(open->nranks);
    t["path"] = path_of(open);
    const char *sms = gic::kv_find(open->nic_config, open->nic_config_count, "sms");
    t["engine_sms"] = strcmp(open->nic, "soft") != 0 ? "0" : sms ? sms : "1";
    t["timeout_ns"] = std::to_string(open->timeout_ns);
    t["device_index"] = strncmp(open->device, "cuda:", 5) == 0 ? open->device + 5 : "0";
    t["python.version"] = python.version;
    t["python.library"] = python.library;
    t["python.deep_ep"] = python.get("deep_ep");
}

int start(gic_session *s, const struct gic_open *open) {
    const bool with_double = is_double(gic::Config(keys, key_count, open));
    const Python *python = nullptr;
    if (int rc = s->ranks.agree(the_python(&python), "find Python"))
        return rc;
    if (!with_double) {
        set_environment(open);
        if (strcmp(open->nic, "soft") == 0)
            if (int rc = prepare_transport(s, open))
                return rc;
    }
    fill_texts(s, open, *python);
    if (int rc = s->ranks.agree(Interpreter::get(*python, &s->interpreter), "start Python"))
        return rc;
    if (int rc = call(s, "open"))
        return rc;
    s->opened = true;
    return 0;
}

int probe(const struct gic_open *open) {
    return gic::guarded([&] { return check(open); });
}

int open_session(const struct gic_open *open, struct gic_session **session_p) {
    return gic::guarded([&]() -> int {
        auto s = std::make_unique<gic_session>();
        s->rank = (uint32_t)open->rank;
        s->nranks = (uint32_t)open->nranks;
        s->comm = *open->comm;
        s->ranks = {s->rank, s->nranks, &s->comm};
        s->watch = {&s->comm, open->stop, open->timeout_ns};
        int rc = check(open);
        if (rc == 0)
            rc = start(s.get(), open);
        if (rc) {
            const std::string said = gic::error_text();
            s->unclean = true;
            close_session(s.release());
            return gic::fail(rc, "%s", said.c_str());
        }
        *session_p = s.release();
        return 0;
    });
}

// Host memory: DeepEP moves what the adapter has put into tensors, outside of any time taken.
int window(struct gic_session *s, uint64_t bytes) {
    return gic::guarded([&]() -> int {
        if (bytes == 0)
            return gic::fail(-EINVAL, "window of 0 bytes");
        s->window.assign(bytes, 0);
        s->has_window = true;
        return 0;
    });
}

int check_range(const gic_session *s, uint64_t offset, size_t bytes) {
    const uint64_t size = s->window.size();
    if (!s->has_window)
        return gic::fail(-EINVAL, "no window yet");
    if (offset > size || bytes > size - offset)
        return gic::fail(-ERANGE, "%zu bytes at offset %llu: the window has %llu", bytes,
                         (unsigned long long)offset, (unsigned long long)size);
    return 0;
}

int write(struct gic_session *s, uint64_t offset, const void *src, size_t bytes) {
    int rc = check_range(s, offset, bytes);
    if (rc == 0 && bytes)
        memcpy(s->window.data() + offset, src, bytes);
    return rc;
}

int read(struct gic_session *s, uint64_t offset, void *dst, size_t bytes) {
    int rc = check_range(s, offset, bytes);
    if (rc == 0 && bytes)
        memcpy(dst, s->window.data() + offset, bytes);
    return rc;
}

// Offsets come from the workload; what lies outside the window would be written by Python.
int check_run(const gic_session *s, const struct gic_run *run) {
    if (strcmp(run->workload, "moe") != 0)
        return gic::fail(-ENOTSUP, "deepep runs moe only: it has no single operations, and none of \"%s\"",
                         run->workload);
    auto number = [&](const char *name) {
        uint64_t v = UINT64_MAX;
        const char *text = gic::kv_find(run->args, run->arg_count, name);
        return text && gic::parse_u64(text, &v) ? v : UINT64_MAX;
    };
    const uint64_t row = 2 * number("hidden");
    const struct {
        const char *name;
        uint64_t bytes;
    } areas[] = {{"x", row * number("tokens")},
                 {"out", row * number("tokens")},
                 {"recv", row * number("recv_rows")},
                 {"format", 8}};
    for (const auto &a : areas)
        if (int rc = check_range(s, number(a.name), a.bytes))
            return rc;
    return 0;
}

int run(struct gic_session *s, const struct gic_run *run, struct gic_result *result_p) {
    return gic::guarded([&]() -> int {
        if (int rc = check_run(s, run))
            return rc;
        s->results.clear();
        s->point_facts = gic::Facts();
        int rc = call(s, "run", run);
        if (s->transport && s->transport->error() != 0) {
            s->unclean = true;
            return gic::fail(-EIO, "%s", s->transport->last_error());
        }
        if (rc == 0)
            s->results.publish(result_p);
        return rc;
    });
}

int counters(struct gic_session *s, const struct gic_counter **counters_p, uint32_t *count_p) {
    *counters_p = nullptr;
    *count_p = 0;
    if (!s->transport)
        return 0; // no NIC of ours
    return gic::guarded([&]() -> int {
        std::map<std::string, uint64_t> all;
        s->counters.clear();
        if (int rc = raw_counters(s, &all, &s->counters))
            return rc;
        s->counters.publish(counters_p, count_p);
        return 0;
    });
}

int facts(struct gic_session *s, const struct gic_kv **facts_p, uint32_t *count_p) {
    return gic::guarded([&]() -> int {
        if (s->transport) {
            const struct gic_kv *list;
            uint32_t n;
            if (int rc = s->transport->facts(&list, &n))
                return gic::fail(rc, "%s", s->transport->last_error());
            for (uint32_t i = 0; i < n; i++)
                s->facts.set(list[i].key, std::string(list[i].value));
        }
        s->all_facts = s->facts;
        const struct gic_kv *list;
        uint32_t n;
        s->point_facts.publish(&list, &n);
        for (uint32_t i = 0; i < n; i++)
            s->all_facts.set(list[i].key, std::string(list[i].value));
        s->all_facts.publish(facts_p, count_p);
        return 0;
    });
}

const char *last_error() { return gic::error_text().c_str(); }

} // namespace

GIC_EXPORT const struct gic_backend gic_backend_v1 = {
    "deepep",
    "1",
    sizeof(struct gic_backend),
    GIC_ABI_VERSION,
    GIC_CAP_MOE | GIC_CAP_HOST_DEVICE | GIC_CAP_CUDA_DEVICE | GIC_CAP_NIC_SOFT | GIC_CAP_NIC_MLX5 |
        GIC_CAP_NIC_NONE,
    keys,
    key_count,
    // Over a NIC mode=ll puts every row with one write, and counts rows with an atomic.
    {{1, 0, 0}, {}, {0, 0, 1}},
    probe,
    open_session,
    close_session,
    window,
    write,
    read,
    run,
    counters,
    facts,
    last_error,
};
