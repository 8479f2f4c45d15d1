/* Counts what a program asks of the heap, into a file that others can map: LD_PRELOAD=heapcount.so HEAPCOUNT=FILE program.
 *
 * The file holds a line of six 64-bit numbers for each process: its id, allocations, bytes asked for, frees, bytes handed out
 * (usable size), bytes given back. What a program forks has a line of its own, that begins with zeros. A resize counts as an
 * allocation of what it adds, or of nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct counts {
  _Atomic uint64_t process, allocations, asked, frees, taken, returned;
};

enum { LINES = 64 };

static struct counts before_start; /* until the file is mapped, without one, and when it is full */
static struct counts* counts = &before_start;
static struct counts* file;

static void* (*next_malloc)(size_t);
static void* (*next_calloc)(size_t, size_t);
static void* (*next_realloc)(void*, size_t);
static void* (*next_memalign)(size_t, size_t);
static void (*next_free)(void*);

/* dlsym itself may allocate: that is served from here, and never given back. */
static char early[8192] __attribute__((aligned(16)));
static size_t early_used;

static int is_early(const void* block) { return (const char*)block >= early && (const char*)block < early + sizeof early; }

static void* early_block(size_t size) {
  const size_t whole = (size + 15) & ~(size_t)15;
  if (whole > sizeof early - early_used) abort();
  void* block = early + early_used;
  early_used += whole;
  return block;
}

/* POSIX lets a function be stored this way, ISO C does not know it. */
static void find(void* target, const char* name) {
  void* symbol = dlsym(RTLD_NEXT, name);
  if (symbol == NULL) abort();
  memcpy(target, &symbol, sizeof symbol);
}

static int ready(void) {
  static int state; /* 0 not yet, 1 looking, 2 found; the first call comes before there are threads */
  if (state == 0) {
    state = 1;
    find(&next_calloc, "calloc");
    find(&next_malloc, "malloc");
    find(&next_realloc, "realloc");
    find(&next_memalign, "memalign");
    find(&next_free, "free");
    state = 2;
  }
  return state == 2;
}

static void take_line(void) {
  counts = &before_start;
  for (struct counts* line = file; line < file + LINES; ++line) {
    uint64_t nobody = 0;
    if (atomic_compare_exchange_strong(&line->process, &nobody, (uint64_t)getpid())) {
      counts = line;
      return;
    }
  }
}

__attribute__((constructor)) static void map_counts(void) {
  const char* path = getenv("HEAPCOUNT");
  if (path == NULL) return;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) abort();
  void* page = mmap(NULL, LINES * sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) abort();
  close(fd);
  file = page;
  take_line();
  if (pthread_atfork(NULL, NULL, take_line) != 0) abort();
}

static void* took(void* block, size_t size) {
  if (block != NULL) {
    atomic_fetch_add(&counts->allocations, 1);
    atomic_fetch_add(&counts->asked, size);
    atomic_fetch_add(&counts->taken, malloc_usable_size(block));
  }
  return block;
}

void* malloc(size_t size) { return ready() ? took(next_malloc(size), size) : early_block(size); }

void* calloc(size_t number, size_t size) {
  /* The static store is zero, and each part of it is used once. */
  return ready() ? took(next_calloc(number, size), number * size) : early_block(number * size);
}

void free(void* block) {
  if (block == NULL || is_early(block)) return;
  if (!ready()) return;
  atomic_fetch_add(&counts->frees, 1);
  atomic_fetch_add(&counts->returned, malloc_usable_size(block));
  next_free(block);
}

void* realloc(void* block, size_t size) {
  if (block == NULL) return malloc(size);
  if (is_early(block)) {
    void* moved = malloc(size);
    const size_t left = (size_t)(early + sizeof early - (char*)block);
    if (moved != NULL) memcpy(moved, block, size < left ? size : left);
    return moved;
  }
  if (!ready()) return NULL;
  const size_t before = malloc_usable_size(block);
  void* resized = next_realloc(block, size);
  if (resized == NULL) return NULL;
  const size_t after = malloc_usable_size(resized);
  atomic_fetch_add(&counts->allocations, 1);
  if (size > before) atomic_fetch_add(&counts->asked, size - before);
  atomic_fetch_add(&counts->frees, 1);
  atomic_fetch_add(&counts->taken, after);
  atomic_fetch_add(&counts->returned, before);
  return resized;
}

void* memalign(size_t alignment, size_t size) { return ready() ? took(next_memalign(alignment, size), size) : NULL; }

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** out, size_t alignment, size_t size) {
  void* block = memalign(alignment, size);
  if (block == NULL) return ENOMEM;
  *out = block;
  return 0;
}
