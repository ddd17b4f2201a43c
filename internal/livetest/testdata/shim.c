// Preloaded into a server, this does what the three int64 say that stand in the file that SNIB_SHIM names, from the moment when
// they are written: the first sets the wall clock ahead by so many nanoseconds. If the second is not 0, nothing gets to the disk
// for certain: fsync and fdatasync fail with EIO. If the third is not 0, the disk is full: writes to files fail with ENOSPC, also
// where the file has the place already, as on file systems that copy on write. Other clocks run on as they are, and whoever waits
// until a time of the wall clock waits as long as that clock says. What does get to the disk is noted in the file that SNIB_SYNCED
// names: after each fsync the inode of the file and its size, as two int64.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const int64_t billion = 1000000000;

static int64_t order(int which) {
	static volatile int64_t *orders;
	if (!orders) {
		const char *path = getenv("SNIB_SHIM");
		int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		void *page = fd < 0 ? MAP_FAILED : mmap(NULL, 3 * sizeof *orders, PROT_READ, MAP_SHARED, fd, 0);
		if (fd >= 0)
			close(fd);
		if (page == MAP_FAILED)
			return 0;
		orders = page;
	}
	return orders[which];
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int failed = syscall(SYS_clock_gettime, id, ts);
	if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t now = ts->tv_sec * billion + ts->tv_nsec + order(0);
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

// Whoever waits is told apart by the time: the wall clock counts from 1970, and the others from the boot, which is not 30 years
// ago.
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
	if (until->tv_sec < billion)
		return pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, until);
	int64_t ahead = order(0), ns = until->tv_nsec - ahead % billion; // the whole in ns may be too large: some wait for centuries
	struct timespec real = {until->tv_sec - ahead / billion, ns};
	if (ns < 0 || ns >= billion) {
		real.tv_sec += ns < 0 ? -1 : 1;
		real.tv_nsec -= ns < 0 ? -billion : billion;
	}
	return pthread_cond_clockwait(cond, mutex, CLOCK_REALTIME, &real);
}

static int sync_with(long call, int fd) {
	struct stat st;
	int known = !fstat(fd, &st); // what is written from now on need not be on the disk
	if (order(1)) {
		errno = EIO;
		return -1;
	}
	int failed = syscall(call, fd);
	const char *path = getenv("SNIB_SYNCED");
	int notes = failed || !known || !path ? -1 : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (notes >= 0) {
		int64_t note[2] = {st.st_ino, st.st_size};
		failed = syscall(SYS_write, notes, note, sizeof note) != sizeof note;
		close(notes);
	}
	return failed ? -1 : 0;
}

int fsync(int fd) {
	return sync_with(SYS_fsync, fd);
}

int fdatasync(int fd) {
	return sync_with(SYS_fdatasync, fd);
}

// is_full reports whether fd is a file, and the disk is full.
static int is_full(int fd) {
	struct stat st;
	if (!order(2) || fstat(fd, &st) || !S_ISREG(st.st_mode))
		return 0;
	errno = ENOSPC;
	return 1;
}

ssize_t write(int fd, const void *buf, size_t n) {
	return is_full(fd) ? -1 : syscall(SYS_write, fd, buf, n);
}

ssize_t writev(int fd, const struct iovec *parts, int n) {
	return is_full(fd) ? -1 : syscall(SYS_writev, fd, parts, n);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at) {
	return is_full(fd) ? -1 : syscall(SYS_pwrite64, fd, buf, n, at);
}

ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t at) {
	return pwrite(fd, buf, n, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t at) {
	return is_full(fd) ? -1 : syscall(SYS_pwritev, fd, parts, n, at, 0);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int n, off64_t at) {
	return pwritev(fd, parts, n, at);
}
