/* A libcufile for tests, after the documentation of its interface. Data moves by pread and pwrite.
 *
 * FAKE_CUFILE has words that change what it does:
 *   error      every tenth read fails with 5044
 *   errno      every tenth read fails with EIO
 *   short      every tenth read moves half of the bytes
 *   wrong      every tenth read returns other data
 *   failed     every tenth entry of a batch fails
 *   no-async   operations on streams are not supported
 *   no-buffer  memory cannot be registered
 *
 * Files can be registered if the configuration allows compatible mode. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  int err, cu_err;
} outcome;
typedef struct {
  int type;
  union {
    int fd;
    void *handle;
  } handle;
  const void *fs_ops;
} descriptor;
typedef struct {
  unsigned major, minor;
  size_t poll_thresh_size, max_direct_io_size;
  unsigned dstatusflags, dcontrolflags, fflags, max_device_cache_size, per_buffer_cache_size, max_device_pinned_mem_size;
  unsigned max_batch_io_size, max_batch_io_timeout_msecs;
} properties;
typedef struct {
  int mode;
  void *base;
  off_t file_offset, base_offset;
  size_t size;
  void *fh;
  int opcode;
  void *cookie;
} entry;
typedef struct {
  void *cookie;
  int status;
  size_t ret;
} event;

enum { MAX_BATCH = 8 };
typedef struct {
  unsigned room, waiting;
  event events[MAX_BATCH];
} batch;

static atomic_int reads, open_files, open_batches, is_open, buffers;

static bool has(const char *word) {
  const char *words = getenv("FAKE_CUFILE");
  return words && strstr(words, word);
}
static outcome result(int err) { return (outcome){err, 0}; }
static bool tenth(void) { return atomic_fetch_add(&reads, 1) % 10 == 9; }

static bool compat(void) {
  const char *path = getenv("CUFILE_ENV_PATH_JSON");
  char text[4096] = {0};
  FILE *f = path ? fopen(path, "r") : NULL;
  if (!f) return false;
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  size_t to = 0;
  for (size_t i = 0; i < n; ++i)
    if (text[i] != ' ' && text[i] != '\n') text[to++] = text[i];
  text[to] = 0;
  return strstr(text, "\"allow_compat_mode\":true");
}

outcome cuFileDriverOpen(void) { return result(atomic_exchange(&is_open, 1) ? 5026 : 0); }
outcome cuFileDriverClose_v2(void) {
  if (open_files || open_batches || buffers) {
    fprintf(stderr, "fake: closed with %d files, %d batches, %d buffers\n", open_files, open_batches, buffers);
    abort();
  }
  return result(0);
}
outcome cuFileDriverGetProperties(properties *p) {
  memset(p, 0, sizeof *p);
  p->dcontrolflags = compat() ? 2 : 0;
  p->fflags = 1 << 1 | 1 << 2;
  p->max_batch_io_size = MAX_BATCH;
  return result(0);
}
outcome cuFileGetVersion(int *version) {
  *version = 1150;
  return result(0);
}
outcome cuFileHandleRegister(void **fh, descriptor *d) {
  if (!compat()) return result(5027);
  ++open_files;
  *fh = (void *)(intptr_t)(d->handle.fd + 1);
  return result(0);
}
void cuFileHandleDeregister(void *fh) {
  (void)fh;
  --open_files;
}
outcome cuFileBufRegister(const void *base, size_t bytes, int flags) {
  (void)base, (void)bytes, (void)flags;
  if (has("no-buffer")) return result(5036);
  ++buffers;
  return result(0);
}
outcome cuFileBufDeregister(const void *base) {
  (void)base;
  --buffers;
  return result(0);
}
ssize_t cuFileRead(void *fh, void *base, size_t bytes, off_t at, off_t to) {
  char *data = (char *)base + to;
  ssize_t n = pread((int)(intptr_t)fh - 1, data, bytes, at);
  if (n < 0 || !tenth()) return n;
  if (has("error")) return -5044;
  if (has("errno")) return errno = EIO, -1;
  if (has("short")) return n / 2;
  if (has("wrong")) data[bytes / 2] ^= 1;
  return n;
}
ssize_t cuFileWrite(void *fh, const void *base, size_t bytes, off_t at, off_t from) {
  return pwrite((int)(intptr_t)fh - 1, (const char *)base + from, bytes, at);
}

outcome cuFileBatchIOSetUp(batch **b, unsigned nr) {
  if (nr > MAX_BATCH) return result(5022);
  *b = calloc(1, sizeof **b);
  (*b)->room = nr;
  ++open_batches;
  return result(0);
}
outcome cuFileBatchIOSubmit(batch *b, unsigned nr, entry *entries, unsigned flags) {
  (void)flags;
  if (b->waiting + nr > b->room) return result(5037);
  for (unsigned i = 0; i < nr; ++i) {
    entry *e = entries + i;
    if (e->mode != 1) return result(5022);
    ssize_t n = e->opcode ? cuFileWrite(e->fh, e->base, e->size, e->file_offset, e->base_offset)
                          : cuFileRead(e->fh, e->base, e->size, e->file_offset, e->base_offset);
    int status = has("failed") && tenth() ? 0x40 : 0x10;
    b->events[b->waiting++] = (event){e->cookie, status, (size_t)n};
  }
  return result(0);
}
/* Returns the last events first, half of them each time. */
outcome cuFileBatchIOGetStatus(batch *b, unsigned min, unsigned *nr, event *events, struct timespec *timeout) {
  (void)timeout;
  unsigned n = (b->waiting + 1) / 2;
  if (n < min) n = min;
  if (n > *nr) n = *nr;
  if (n > b->waiting) n = b->waiting;
  for (unsigned i = 0; i < n; ++i) events[i] = b->events[--b->waiting];
  *nr = n;
  return result(0);
}
outcome cuFileBatchIOCancel(batch *b) {
  b->waiting = 0;
  return result(0);
}
void cuFileBatchIODestroy(batch *b) {
  free(b);
  --open_batches;
}

outcome cuFileStreamRegister(void *stream, unsigned flags) {
  (void)stream, (void)flags;
  return result(has("no-async") ? 5038 : 0);
}
outcome cuFileStreamDeregister(void *stream) {
  (void)stream;
  return result(0);
}
/* Seen in libcufile 1.15: memory that is not registered counts as long as the operation is. */
static bool out_of_range(off_t offset) { return !buffers && offset != 0; }
outcome cuFileReadAsync(void *fh, void *base, size_t *bytes, off_t *at, off_t *to, ssize_t *moved, void *stream) {
  (void)stream;
  *moved = out_of_range(*to) ? -EIO : cuFileRead(fh, base, *bytes, *at, *to);
  return result(0);
}
outcome cuFileWriteAsync(void *fh, void *base, size_t *bytes, off_t *at, off_t *from, ssize_t *moved, void *stream) {
  (void)stream;
  *moved = out_of_range(*from) ? -EIO : cuFileWrite(fh, base, *bytes, *at, *from);
  return result(0);
}
