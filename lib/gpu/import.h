/*
 * Private to lib/gpu: how this rank gets at its peers' buffers.
 *
 * An import is a mapping of a peer's allocation, kept in a cache by (process, allocation id), with
 * reference counts: a mapping in use is never closed; beyond TIARA_GPU_SHARE_KEPT unused ones the
 * least recently used goes. Allocation ids are never used twice, so a buffer that was freed and
 * taken again is another entry; its old mapping leaves by age, or at once when the new one has its
 * addresses.
 */
#ifndef TIARA_GPU_IMPORT_H
#define TIARA_GPU_IMPORT_H

#include "gpu/share.h"

#define TIARA_GPU_SHARE_KEPT 64

struct tiara_gpu_imports; /* a node object's part of the cache, which is one per process */
struct tiara_gpu_import; /* a mapping in use */

TIARA_MUST_USE enum tiara_err tiara_gpu_imports_open(
    struct tiara_gpu_imports **imports_out, int ordinal);
/*
 * Drops what is still in use through @imports, and closes all mappings of its device that nobody
 * else uses. No kernel may use one. NULL is allowed.
 */
void tiara_gpu_imports_close(struct tiara_gpu_imports *imports);

/*
 * Maps what @from says; *at_out is the buffer in this process's addresses, good until drop. Errors:
 * TIARA_ERR_UNSUPPORTED (kind NONE, or it cannot be mapped: logged as info), TIARA_ERR_NOMEM. A
 * rank's own export cannot be imported.
 */
TIARA_MUST_USE enum tiara_err tiara_gpu_import(struct tiara_gpu_imports *imports,
    const struct tiara_gpu_export *from, struct tiara_gpu_import **import_out, void **at_out);
void tiara_gpu_import_drop(struct tiara_gpu_imports *imports, struct tiara_gpu_import *import);

/* Mappings of the device of @imports that are held now, in use or not: for tests. */
int tiara_gpu_imports_count(const struct tiara_gpu_imports *imports);

#endif
