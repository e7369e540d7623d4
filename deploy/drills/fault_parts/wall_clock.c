/* Gives one process a wall clock of its own: the machine's, moved by the microseconds in the file that
 * DRILL_WALL_CLOCK names (8 bytes, native order, read anew each time). Preloaded; the machine's clock, other
 * processes and the monotonic clock stay as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *moved;

__attribute__((constructor)) static void open_clock(void) {
    const char *name = getenv("DRILL_WALL_CLOCK");
    int file = name ? open(name, O_RDONLY) : -1;
    if (file < 0) return;
    void *at = mmap(0, sizeof *moved, PROT_READ, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) moved = at;
    close(file);
}

int clock_gettime(clockid_t which, struct timespec *out) {
    int failed = (int)syscall(SYS_clock_gettime, which, out);
    if (failed || !moved || (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE)) return failed;
    int64_t micros = (int64_t)out->tv_sec * 1000000 + out->tv_nsec / 1000 + *moved;
    out->tv_nsec = micros % 1000000 * 1000 + out->tv_nsec % 1000;
    out->tv_sec = micros / 1000000;
    return 0;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    if (!failed && out) { out->tv_sec = now.tv_sec; out->tv_usec = now.tv_nsec / 1000; }
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
