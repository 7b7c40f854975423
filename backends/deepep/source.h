/* The Python half, inside the plugin: one file is all that has to be carried. */
#ifndef BACKENDS_DEEPEP_SOURCE_H
#define BACKENDS_DEEPEP_SOURCE_H

#include <stddef.h>

namespace deepep {

struct Source {
    const char *name, *file, *begin, *end;
};

extern const Source sources[]; /* in the order in which they import each other */
extern const size_t source_count;

} // namespace deepep

#endif
