#include "backends/deepep/source.h"

// Relative to the root of the repository, from where everything is compiled.
#define SOURCE(NAME)                                                                                         \
    extern "C" const char gic_deepep_##NAME##_begin[], gic_deepep_##NAME##_end[];                            \
    asm(".pushsection .rodata\n"                                                                             \
        ".hidden gic_deepep_" #NAME "_begin\n.globl gic_deepep_" #NAME "_begin\ngic_deepep_" #NAME           \
        "_begin:\n"                                                                                          \
        ".incbin \"backends/deepep/" #NAME ".py\"\n"                                                         \
        ".hidden gic_deepep_" #NAME "_end\n.globl gic_deepep_" #NAME "_end\ngic_deepep_" #NAME "_end:\n"     \
        ".byte 0\n.popsection\n")

SOURCE(bridge);
SOURCE(operations);
SOURCE(cuda);
SOURCE(double);
SOURCE(adapter);

namespace deepep {

#define ENTRY(NAME)                                                                                          \
    {                                                                                                        \
        "gic_deepep_" #NAME, "backends/deepep/" #NAME ".py", gic_deepep_##NAME##_begin,                      \
            gic_deepep_##NAME##_end                                                                          \
    }
const Source sources[] = {ENTRY(bridge), ENTRY(operations), ENTRY(cuda), ENTRY(double), ENTRY(adapter)};
const size_t source_count = sizeof sources / sizeof *sources;

} // namespace deepep
