/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded, it makes calls that change files below a folder fail from the n-th on, some or all, and keeps a log.
 * The folder is $REFUSE_BELOW; `refuse` says what fails, in the process that calls it. A write that fails leaves its
 * first part in the file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long calls, first, last;
static int code, log_fd = -1;

/* Fail `number` calls from call `at` on (0: never), or all, with `error`; log every call to `log`. */
void refuse(long at, long number, int error, const char *log)
{
    first = at;
    last = number ? at + number - 1 : LONG_MAX;
    code = error;
    calls = 0;
    log_fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
}

/* Whether this call is to fail; errno says why. */
static int refused(const char *what, const char *path)
{
    const char *below = getenv("REFUSE_BELOW");
    if (log_fd < 0 || !below || strncmp(path, below, strlen(below)))
        return 0;
    pthread_mutex_lock(&lock);
    calls++;
    int fails = first && calls >= first && calls <= last;
    dprintf(log_fd, "%s %s %s\n", fails ? "refused" : "done", what, path);
    pthread_mutex_unlock(&lock);
    errno = fails ? code : errno;
    return fails;
}

static int refused_fd(const char *what, int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = fd == log_fd ? -1 : readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return refused(what, path);
}

static int refused_at(const char *what, int folder, const char *path)
{
    return folder == AT_FDCWD || path[0] == '/' ? refused(what, path) : refused_fd(what, folder);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define ON_FD(type, name, takes, gives)                  \
    type name takes                                      \
    {                                                    \
        REAL(name);                                      \
        return refused_fd(#name, fd) ? (type)-1 : real gives; \
    }
#define WRITE_PARTS(name, offset_type)                   \
    ssize_t name(int fd, const struct iovec *parts, int count, offset_type at, int flags) \
    {                                                    \
        REAL(name);                                      \
        if (!refused_fd(#name, fd))                      \
            return real(fd, parts, count, at, flags);    \
        real(fd, parts, 1, at, flags);                   \
        errno = code;                                    \
        return -1;                                       \
    }
#define ALLOCATE(name, offset_type)                      \
    int name(int fd, offset_type offset, offset_type size) \
    {                                                    \
        REAL(name);                                      \
        return refused_fd(#name, fd) ? code : real(fd, offset, size); \
    }
#define OPEN(name)                                       \
    int name(const char *path, int flags, ...)           \
    {                                                    \
        REAL(name);                                      \
        va_list more;                                    \
        va_start(more, flags);                           \
        mode_t mode = va_arg(more, mode_t);              \
        va_end(more);                                    \
        return flags & (O_CREAT | __O_TMPFILE) && refused(#name, path) ? -1 : real(path, flags, mode); \
    }
#define OPEN_AT(name)                                    \
    int name(int folder, const char *path, int flags, ...) \
    {                                                    \
        REAL(name);                                      \
        va_list more;                                    \
        va_start(more, flags);                           \
        mode_t mode = va_arg(more, mode_t);              \
        va_end(more);                                    \
        return flags & (O_CREAT | __O_TMPFILE) && refused_at(#name, folder, path) ? -1 : real(folder, path, flags, mode); \
    }

ON_FD(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
ON_FD(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
ON_FD(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
ON_FD(ssize_t, pwritev, (int fd, const struct iovec *data, int count, off_t at), (fd, data, count, at))
ON_FD(ssize_t, pwritev64, (int fd, const struct iovec *data, int count, off64_t at), (fd, data, count, at))
WRITE_PARTS(pwritev2, off_t)
WRITE_PARTS(pwritev64v2, off64_t)
ON_FD(int, ftruncate, (int fd, off_t size), (fd, size))
ON_FD(int, ftruncate64, (int fd, off64_t size), (fd, size))
ON_FD(int, fsync, (int fd), (fd))
ON_FD(int, syncfs, (int fd), (fd))
ON_FD(int, fdatasync, (int fd), (fd))
ON_FD(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
ON_FD(int, fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size))
ALLOCATE(posix_fallocate, off_t)
ALLOCATE(posix_fallocate64, off64_t)
OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)

int rename(const char *from, const char *to)
{
    REAL(rename);
    return refused("rename", to) ? -1 : real(from, to);
}

int renameat(int from, const char *old, int to, const char *new)
{
    REAL(renameat);
    return refused_at("rename", to, new) ? -1 : real(from, old, to, new);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(mkdir);
    return refused("mkdir", path) ? -1 : real(path, mode);
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    REAL(mkdirat);
    return refused_at("mkdir", folder, path) ? -1 : real(folder, path, mode);
}

int unlink(const char *path)
{
    REAL(unlink);
    return refused("unlink", path) ? -1 : real(path);
}

int unlinkat(int folder, const char *path, int flags)
{
    REAL(unlinkat);
    return refused_at("unlink", folder, path) ? -1 : real(folder, path, flags);
}
