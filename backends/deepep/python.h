/* CPython inside a rank process, without its headers and without being linked against it.
 *
 * The interpreter that is embedded is the user's own: that of GIC_PYTHON, else of an active virtual or conda environment,
 * else python3 of PATH. It is run once to say where its shared library lies and what it can import; the library is then
 * opened globally, since extension modules expect its symbols in the process.
 *
 * All Python runs on one thread, which lives as long as the process: torch and CUDA keep state by thread, and an
 * interpreter that another thread finalises hangs. It is therefore never finalised. A call that makes no progress is given
 * up: its thread stays behind (it may be waiting for a kernel), every later call is refused, and the process can still end.
 */
#ifndef BACKENDS_DEEPEP_PYTHON_H
#define BACKENDS_DEEPEP_PYTHON_H

#include "backends/abi/adapter.cuh"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

namespace deepep {

/* What an interpreter says of itself. */
struct Python {
    std::string executable, version;
    std::string library; /* path or name of libpython */
    std::map<std::string, std::string>
        found; /* of what can be imported: torch, deep_ep, ...; python.cc lists the keys */

    /* "" when it is not there. */
    std::string get(const char *key) const {
        auto it = found.find(key);
        return it == found.end() ? "" : it->second;
    }
};

/* Finds the user's interpreter and asks it. 0, or -ENOTSUP with what lacks. */
int find_python(Python *python_p);

/* What the Python half may ask of the session while a call runs, by the thread of Python. bridge.py has the same list.
 * Strings and blocks that it hands over are valid during the call only; those that it is given, until the call ends. */
struct Bridge {
    void *arg;
    /* Collective, as gic_comm.allgather; made on the session's own thread. */
    int (*exchange)(void *arg, const void *mine, void *all, size_t bytes);
    void (*series)(void *arg, const char *name, const char *unit, const double *values, size_t count);
    void (*fact)(void *arg, const char *key, const char *value);
    void (*fail)(void *arg, int status, const char *text);
    void (*progress)(void *arg, const char *what);    /* the watchdog starts anew; `what` is for its text */
    const char *(*text)(void *arg, const char *name); /* a parameter by name, NULL when there is none */
    const void *(*blob)(void *arg, const char *name, size_t *bytes_p);
    void *(*window)(void *arg, uint64_t *bytes_p);
    void (*setup)(void *arg, int begin); /* what the NIC does from 1 to 0 belongs to no workload */
};

/* One call's data as the session provides it. Lives until the call is over, or for good when it was given up. */
class Call {
  public:
    virtual ~Call() = default;
    virtual void series(const char *name, const char *unit, const double *values, size_t count) = 0;
    virtual void fact(const char *key, const char *value) = 0;
    virtual const char *text(const char *name) = 0;
    virtual const void *blob(const char *name, size_t *bytes_p) = 0;
    virtual void *window(uint64_t *bytes_p) = 0;
    virtual void setup(bool begin) = 0;
};

/* What ends a call early. */
struct Watch {
    const struct gic_comm *comm;
    const volatile uint32_t *stop;
    uint64_t timeout_ns; /* without progress */
};

class Interpreter {
  public:
    /* The one of this process; started at the first call. Signal dispositions are what they were before. */
    static int get(const Python &python, Interpreter **interpreter_p);

    /* Runs function `name` of module adapter to its end. A negative status with the text that Python gave;
     * -ETIMEDOUT, -ECANCELED when it was given up. */
    int call(const char *name, std::shared_ptr<Call> call, const Watch &watch);

  private:
    struct Job;
    explicit Interpreter(const Python &python) : python_(python) {}
    int load();
    void serve();

    const Python python_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::shared_ptr<Job> job_;
    bool started_ = false;
    int start_status_ = 0;
    std::string start_text_, lost_; /* lost_: what the call that was given up was doing */
};

} // namespace deepep

#endif
