/*
 * Shifts the wall clock of the process it is preloaded into.
 *
 * The offset in milliseconds is the int64_t at the start of the file named by REDLATCH_CLOCK_OFFSET, mapped shared, so
 * that a test moves the clock by writing to that file. Monotonic clocks are left alone. With REDLATCH_CLOCK_STANDS the
 * file has the time itself, in microseconds since 1970, and the clock stands there.
 *
 * Time is asked of the kernel directly: allocators call these functions while the process starts, and going through
 * the dynamic linker for the real ones would allocate in turn.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset_ms;
static volatile const int64_t *standing_us;

static const int64_t *mapped(const char *variable) {
    const char *path = getenv(variable);
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return NULL;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return page == MAP_FAILED ? NULL : page;
}

__attribute__((constructor)) static void map_files(void) {
    offset_ms = mapped("REDLATCH_CLOCK_OFFSET");
    standing_us = mapped("REDLATCH_CLOCK_STANDS");
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && standing_us && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        now->tv_sec = *standing_us / 1000000;
        now->tv_nsec = *standing_us % 1000000 * 1000;
    } else if (result == 0 && offset_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t shift = *offset_ms;
        now->tv_sec += shift / 1000;
        now->tv_nsec += shift % 1000 * 1000000;
        if (now->tv_nsec >= 1000000000) {
            now->tv_nsec -= 1000000000;
            now->tv_sec += 1;
        } else if (now->tv_nsec < 0) {
            now->tv_nsec += 1000000000;
            now->tv_sec -= 1;
        }
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds)
        *seconds = now.tv_sec;
    return now.tv_sec;
}
