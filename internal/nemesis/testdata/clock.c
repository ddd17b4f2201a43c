// Preloaded into a server, this sets its wall clock ahead by the nanoseconds that stand, as an int64, in the file that
// SNIB_CLOCK names. Who changes the file steps the clock at once. Other clocks run on as they are.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t billion = 1000000000;

static int64_t ahead(void) {
	static volatile int64_t *offset;
	if (!offset) {
		const char *path = getenv("SNIB_CLOCK");
		int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
		if (fd >= 0)
			close(fd);
		if (page == MAP_FAILED)
			return 0;
		offset = page;
	}
	return *offset;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int failed = syscall(SYS_clock_gettime, id, ts);
	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t now = ts->tv_sec * billion + ts->tv_nsec + ahead();
		ts->tv_sec = now / billion;
		ts->tv_nsec = now % billion;
	}
	return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
	struct timespec ts;
	(void)tz;
	int failed = clock_gettime(CLOCK_REALTIME, &ts);
	if (!failed) {
		tv->tv_sec = ts.tv_sec;
		tv->tv_usec = ts.tv_nsec / 1000;
	}
	return failed;
}

time_t time(time_t *t) {
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	if (t)
		*t = ts.tv_sec;
	return ts.tv_sec;
}
