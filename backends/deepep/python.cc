#include "backends/deepep/python.h"

#include "backends/deepep/source.h"

#include <atomic>
#include <chrono>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ;

namespace deepep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int ask_timeout_ms = 20000; // an interpreter on a cold file system

// Prints key=value lines. Nothing is imported but the standard library: that alone may take seconds with torch.
constexpr const char *questions = R"(
import os, sys, sysconfig
def tell(key, value):
    if value: print(key + '=' + str(value).replace('\n', ' '))
tell('executable', sys.executable)
tell('version', sys.version.split()[0])
if sys.version_info < (3, 8): sys.exit()
import importlib.metadata as metadata, importlib.util as util
def version(*names):
    for name in names:
        try: return metadata.version(name)
        except Exception: pass
def origin(name):
    try: return util.find_spec(name).origin
    except Exception: return None
names = [n for n in (sysconfig.get_config_var('INSTSONAME'), 'libpython%d.%d.so.1.0' % sys.version_info[:2]) if n and '.so' in n]
folders = [d for d in (sysconfig.get_config_var('LIBDIR'), sys.base_prefix + '/lib', sysconfig.get_config_var('LIBPL')) if d]
paths = [os.path.join(d, n) for d in folders for n in names if os.path.exists(os.path.join(d, n))]
tell('library', (paths + names)[0])
tell('torch', origin('torch') and (version('torch') or 'of unknown version'))
place = origin('deep_ep')
tell('deep_ep', place and (version('deep_ep', 'sgl-deep-ep', 'deepinfer-ep') or 'of unknown version'))
tell('deep_ep.path', place)
if place:
    folder = os.path.dirname(place)
    tell('deep_ep.elastic', os.path.exists(os.path.join(folder, 'buffers', 'elastic.py')) and 'yes')
    tell('deep_ep.buffer', (os.path.exists(os.path.join(folder, 'buffer.py')) or os.path.exists(os.path.join(folder, 'buffers', 'legacy.py'))) and 'yes')
tell('nccl', version('nvidia-nccl-cu13', 'nvidia-nccl-cu12'))
tell('nvshmem', version('nvidia-nvshmem-cu13', 'nvidia-nvshmem-cu12'))
)";

// The interpreter to ask, and where that was decided.
int choose(std::string *path_p) {
    if (const char *given = getenv("GIC_PYTHON")) {
        if (access(given, X_OK) != 0)
            return gic::fail(-ENOTSUP, "no Python at GIC_PYTHON=%s: want the path of an interpreter", given);
        *path_p = given;
        return 0;
    }
    for (const char *variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
        const char *prefix = getenv(variable);
        if (!prefix || !*prefix)
            continue;
        const std::string path = std::string(prefix) + "/bin/python3";
        if (access(path.c_str(), X_OK) != 0)
            return gic::fail(-ENOTSUP, "no Python in %s=%s: bin/python3 is not there", variable, prefix);
        *path_p = path;
        return 0;
    }
    std::string rest = getenv("PATH") ? getenv("PATH") : "";
    while (!rest.empty()) {
        const size_t colon = rest.find(':');
        const std::string path = rest.substr(0, colon) + "/python3";
        rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
        if (path[0] == '/' && access(path.c_str(), X_OK) == 0) {
            *path_p = path;
            return 0;
        }
    }
    return gic::fail(-ENOTSUP,
                     "no Python: python3 is not on PATH; activate the environment that has torch and "
                     "deep_ep, or set GIC_PYTHON to its interpreter");
}

// Output of `path -c questions`, within the time.
int ask(const std::string &path, std::string *output_p) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return gic::fail(-errno, "make a pipe: %s", strerror(errno));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    char *argv[] = {const_cast<char *>(path.c_str()), const_cast<char *>("-c"), const_cast<char *>(questions),
                    nullptr};
    pid_t child = 0;
    const int rc = posix_spawn(&child, path.c_str(), &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        return gic::fail(-ENOTSUP, "Python does not start: %s: %s", path.c_str(), strerror(rc));
    }
    const auto end = Clock::now() + std::chrono::milliseconds(ask_timeout_ms);
    bool late = false;
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
        struct pollfd p = {ends[0], POLLIN, 0};
        const int ready = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        char part[4096];
        const ssize_t n = ready > 0 ? read(ends[0], part, sizeof part) : 0;
        if (n <= 0) {
            late = ready == 0;
            break;
        }
        output_p->append(part, (size_t)n);
    }
    close(ends[0]);
    if (late)
        kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (late)
        return gic::fail(-ENOTSUP, "Python does not answer within %d s: %s", ask_timeout_ms / 1000,
                         path.c_str());
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return gic::fail(-ENOTSUP, "Python does not run: %s ends with status %d", path.c_str(),
                         WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return 0;
}

// The functions of CPython's C API that are used; all of them are in every version from 3.8 on.
struct Status { // PyStatus
    int type;
    const char *function, *message;
    int exit_code;
};
struct Api {
    void (*PyConfig_InitPythonConfig)(void *config);
    Status (*PyConfig_SetBytesArgv)(void *config, ssize_t argc, char *const *argv);
    Status (*Py_InitializeFromConfig)(const void *config);
    void (*PyConfig_Clear)(void *config);
    int (*PyStatus_Exception)(Status status);
    int (*PyRun_SimpleString)(const char *code);
    void *(*PyEval_SaveThread)();
    void (*PyEval_RestoreThread)(void *state);
} api;

template <class F> bool find(void *lib, const char *name, F *function_p) {
    *function_p = reinterpret_cast<F>(dlsym(lib, name));
    return *function_p != nullptr;
}

int open_library(const Python &python) {
    void *lib = dlopen(python.library.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!lib)
        return gic::fail(-ENOTSUP,
                         "no libpython: %s of Python %s (%s) does not load (%s); install it (Debian: "
                         "libpython3.x), or set "
                         "GIC_PYTHON to an interpreter that was built with a shared library",
                         python.library.c_str(), python.version.c_str(), python.executable.c_str(),
                         dlerror());
#define FIND(NAME)                                                                                           \
    if (!find(lib, #NAME, &api.NAME))                                                                        \
    return gic::fail(-ENOTSUP, "%s lacks " #NAME ": want Python 3.8 or later", python.library.c_str())
    FIND(PyConfig_InitPythonConfig);
    FIND(PyConfig_SetBytesArgv);
    FIND(Py_InitializeFromConfig);
    FIND(PyConfig_Clear);
    FIND(PyStatus_Exception);
    FIND(PyRun_SimpleString);
    FIND(PyEval_SaveThread);
    FIND(PyEval_RestoreThread);
#undef FIND
    return 0;
}

// Python takes SIGINT, and ignores some signals that Go's runtime handles: what was set before is set again afterwards.
class Signals {
  public:
    Signals() {
        for (int s = 1; s < count; s++)
            known_[s] = sigaction(s, nullptr, &before_[s]) == 0;
    }
    ~Signals() {
        for (int s = 1; s < count; s++)
            if (known_[s] && s != SIGKILL && s != SIGSTOP)
                sigaction(s, &before_[s], nullptr);
    }

  private:
    static constexpr int count = 32; // the real-time ones are nobody's here
    struct sigaction before_[count];
    bool known_[count] = {};
};

// PyConfig is not opaque, and its size is another one in every version: ours is larger than any. The interpreter's path
// as argv[0] makes it find the environment that the path belongs to.
int initialize(const Python &python) {
    Signals restore;
    std::vector<uint64_t> config(8192);
    api.PyConfig_InitPythonConfig(config.data());
    char *argv[] = {const_cast<char *>(python.executable.c_str()), nullptr};
    Status status = api.PyConfig_SetBytesArgv(config.data(), 1, argv);
    if (!api.PyStatus_Exception(status))
        status = api.Py_InitializeFromConfig(config.data());
    const bool bad = api.PyStatus_Exception(status);
    const std::string why = bad && status.message ? status.message : "it wants to exit";
    api.PyConfig_Clear(config.data());
    if (bad)
        return gic::fail(-ENOTSUP, "Python %s does not initialise: %s", python.version.c_str(), why.c_str());
    return 0;
}

int run_code(const std::string &code) {
    return api.PyRun_SimpleString(code.c_str()) ? gic::fail(-EIO, "Python: an error that nobody caught") : 0;
}

std::string number(const void *p) { return std::to_string((uintptr_t)p); }

// Makes the modules out of the plugin's own memory.
int load_sources() {
    Signals restore;
    std::string code = "import ctypes, linecache, sys, types\n"
                       "def gic_load(name, file, at, size):\n"
                       "    text = ctypes.string_at(at, size).decode()\n"
                       "    module = types.ModuleType(name)\n"
                       "    module.__file__ = file\n"
                       "    linecache.cache[file] = (size, None, text.splitlines(True), file)\n"
                       "    sys.modules[name] = module\n"
                       "    exec(compile(text, file, 'exec'), module.__dict__)\n";
    for (size_t i = 0; i < source_count; i++) {
        const Source &s = sources[i];
        code += std::string("gic_load('") + s.name + "', '" + s.file + "', " + number(s.begin) + ", " +
                std::to_string(s.end - s.begin) + ")\n";
    }
    return run_code(code);
}

} // namespace

int find_python(Python *python_p) {
    std::string path, output;
    if (int rc = choose(&path))
        return rc;
    if (int rc = ask(path, &output))
        return rc;
    for (size_t at = 0; at < output.size();) {
        const size_t end = std::min(output.find('\n', at), output.size());
        const std::string line = output.substr(at, end - at);
        const size_t equals = line.find('=');
        if (equals != std::string::npos)
            python_p->found[line.substr(0, equals)] = line.substr(equals + 1);
        at = end + 1;
    }
    python_p->executable = python_p->get("executable");
    python_p->version = python_p->get("version");
    python_p->library = python_p->get("library");
    int major = 0, minor = 0;
    if (sscanf(python_p->version.c_str(), "%d.%d", &major, &minor) == 2 &&
        (major < 3 || (major == 3 && minor < 8)))
        return gic::fail(-ENOTSUP, "Python %s (%s) is too old: want 3.8 or later", python_p->version.c_str(),
                         python_p->executable.c_str());
    if (python_p->executable.empty() || python_p->library.empty())
        return gic::fail(-ENOTSUP, "%s is no Python: it does not tell its own path", path.c_str());
    if (python_p->library[0] == '/')
        return 0;
    // By its name alone: only the loader knows where it is.
    if (void *lib = dlopen(python_p->library.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
        dlclose(lib);
        return 0;
    }
    return gic::fail(
        -ENOTSUP,
        "no libpython: Python %s (%s) has no %s; install it (Debian: libpython3.x), or set GIC_PYTHON to an "
        "interpreter that was built with a shared library",
        python_p->version.c_str(), python_p->executable.c_str(), python_p->library.c_str());
}

// A call under way. It belongs to both threads, so that one that is given up harms nobody who comes back later.
struct Interpreter::Job {
    std::string function;
    std::shared_ptr<Call> call;
    Bridge bridge{};
    Interpreter *owner = nullptr;
    enum { WAITING, RUNNING, EXCHANGE, DONE } state = WAITING;
    bool given_up = false;
    uint64_t steps = 0;
    std::string doing = "its start";
    struct {
        const void *mine;
        void *all;
        size_t bytes;
        int rc;
    } exchange{};
    int failed = 0; // its status, and the line to it
    std::string why;

    void connect();
};

void Interpreter::Job::connect() {
    bridge.arg = this;
    bridge.exchange = [](void *arg, const void *mine, void *all, size_t bytes) -> int {
        Job &j = *static_cast<Job *>(arg);
        std::unique_lock<std::mutex> lock(j.owner->mutex_);
        if (j.given_up)
            return -ECANCELED;
        j.exchange = {mine, all, bytes, 0};
        j.state = EXCHANGE;
        j.owner->changed_.notify_all();
        j.owner->changed_.wait(lock, [&] { return j.state != EXCHANGE || j.given_up; });
        return j.given_up ? -ECANCELED : j.exchange.rc;
    };
    // What a call that was given up still says is dropped: its session may be gone.
    bridge.series = [](void *arg, const char *name, const char *unit, const double *values, size_t count) {
        Job &j = *static_cast<Job *>(arg);
        std::unique_lock<std::mutex> lock(j.owner->mutex_);
        if (!j.given_up)
            j.call->series(name, unit, values, count);
    };
    bridge.fact = [](void *arg, const char *key, const char *value) {
        Job &j = *static_cast<Job *>(arg);
        std::unique_lock<std::mutex> lock(j.owner->mutex_);
        if (!j.given_up)
            j.call->fact(key, value);
    };
    bridge.fail = [](void *arg, int status, const char *text) {
        Job &j = *static_cast<Job *>(arg);
        std::unique_lock<std::mutex> lock(j.owner->mutex_);
        j.failed = status;
        j.why = text;
    };
    bridge.progress = [](void *arg, const char *what) {
        Job &j = *static_cast<Job *>(arg);
        std::unique_lock<std::mutex> lock(j.owner->mutex_);
        j.steps++;
        j.doing = what;
    };
    bridge.text = [](void *arg, const char *name) -> const char * {
        Job &j = *static_cast<Job *>(arg);
        std::unique_lock<std::mutex> lock(j.owner->mutex_);
        return j.given_up ? nullptr : j.call->text(name);
    };
    bridge.blob = [](void *arg, const char *name, size_t *bytes_p) -> const void * {
        Job &j = *static_cast<Job *>(arg);
        std::unique_lock<std::mutex> lock(j.owner->mutex_);
        return j.given_up ? nullptr : j.call->blob(name, bytes_p);
    };
    bridge.window = [](void *arg, uint64_t *bytes_p) -> void * {
        Job &j = *static_cast<Job *>(arg);
        std::unique_lock<std::mutex> lock(j.owner->mutex_);
        *bytes_p = 0;
        return j.given_up ? nullptr : j.call->window(bytes_p);
    };
    bridge.setup = [](void *arg, int begin) {
        Job &j = *static_cast<Job *>(arg);
        std::unique_lock<std::mutex> lock(j.owner->mutex_);
        if (!j.given_up)
            j.call->setup(begin != 0);
    };
}

int Interpreter::load() {
    if (int rc = open_library(python_))
        return rc;
    if (int rc = initialize(python_))
        return rc;
    return load_sources();
}

// The thread of Python.
void Interpreter::serve() {
    const int rc = gic::guarded([this] { return load(); });
    void *state = rc == 0 ? api.PyEval_SaveThread() : nullptr;
    std::unique_lock<std::mutex> lock(mutex_);
    start_status_ = rc;
    start_text_ = rc ? gic::error_text() : "";
    started_ = true;
    changed_.notify_all();
    if (rc)
        return;
    for (;;) {
        changed_.wait(lock, [this] { return job_ && job_->state == Job::WAITING; });
        std::shared_ptr<Job> job = job_;
        job->state = Job::RUNNING;
        const std::string code =
            "sys.modules['gic_deepep_adapter'].call('" + job->function + "', " + number(&job->bridge) + ")\n";
        lock.unlock();
        api.PyEval_RestoreThread(state);
        int status;
        {
            Signals restore; // imports take some
            status = run_code(code);
        }
        const std::string text = status ? gic::error_text() : "";
        state = api.PyEval_SaveThread();
        lock.lock();
        if (status && job->failed == 0) {
            job->failed = status;
            job->why = text;
        }
        job->state = Job::DONE;
        changed_.notify_all();
    }
}

int Interpreter::get(const Python &python, Interpreter **interpreter_p) {
    static std::mutex mutex;
    static Interpreter *only = nullptr;
    std::unique_lock<std::mutex> lock(mutex);
    if (!only) {
        only = new Interpreter(python);
        std::thread([] { only->serve(); }).detach();
        std::unique_lock<std::mutex> starting(only->mutex_);
        only->changed_.wait(starting, [] { return only->started_; });
    }
    if (only->start_status_)
        return gic::fail(only->start_status_, "%s", only->start_text_.c_str());
    *interpreter_p = only;
    return 0;
}

int Interpreter::call(const char *name, std::shared_ptr<Call> call, const Watch &watch) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!lost_.empty())
        return gic::fail(-EIO, "Python was given up in %s, and this process with it", lost_.c_str());
    auto job = std::make_shared<Job>();
    job->function = name;
    job->call = std::move(call);
    job->owner = this;
    job->connect();
    job_ = job;
    changed_.notify_all();
    const auto limit = std::chrono::nanoseconds(watch.timeout_ns);
    auto since = Clock::now();
    uint64_t steps = 0;
    auto give_up = [&](int rc, const char *why) {
        job->given_up = true;
        lost_ = job->doing;
        changed_.notify_all();
        return gic::fail(rc, "%s in %s", why, job->doing.c_str());
    };
    while (job->state != Job::DONE) {
        if (job->state == Job::EXCHANGE) {
            auto &e = job->exchange;
            lock.unlock();
            const int rc = watch.comm->allgather(watch.comm->arg, e.mine, e.all, e.bytes);
            lock.lock();
            e.rc = rc;
            job->state = Job::RUNNING;
            changed_.notify_all();
            since = Clock::now();
            continue;
        }
        // The stop word is set by another thread without a notice.
        changed_.wait_for(lock, std::chrono::milliseconds(20));
        if (job->steps != steps) {
            steps = job->steps;
            since = Clock::now();
        }
        if (job->state == Job::RUNNING || job->state == Job::WAITING) {
            if (__atomic_load_n(watch.stop, __ATOMIC_ACQUIRE))
                return give_up(-ECANCELED, "stopped");
            if (Clock::now() - since > limit) {
                const std::string why =
                    "no progress for " + std::to_string(watch.timeout_ns / 1000000) + " ms";
                return give_up(-ETIMEDOUT, why.c_str());
            }
        }
    }
    job_.reset();
    return job->failed ? gic::fail(job->failed, "%s", job->why.c_str()) : 0;
}

} // namespace deepep
