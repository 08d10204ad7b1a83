/* A disk that fails: stands before the C library and lets calls that change files fail, from the n-th on.

   fail_from(kinds, nth, count, first, rest): of the calls of these kinds, `count` fail with the error `first`,
   beginning with the n-th; all that come later fail with `rest`, unless it is 0. nth = 0 ends it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, NAME = 4, FOLDER = 8, CUT = 16, OPEN = 32 };

static int kinds, nth, count, first, rest, calls;

void fail_from(int of, int from, int many, int error, int then)
{
    kinds = of; nth = from; count = many; first = error; rest = then;
    if (from)
        calls = 0;
}

int calls_seen(void) { return calls; }

static int fails(int kind)
{
    if (!nth || !(kinds & kind) || ++calls < nth)
        return 0;
    errno = calls < nth + count ? first : rest;
    return errno != 0;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)
#define BEFORE(result, name, signature, arguments, kind) \
    result name signature { REAL(name); return fails(kind) ? -1 : real arguments; }

BEFORE(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), WRITE)
BEFORE(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), WRITE)
BEFORE(int, fsync, (int fd), (fd), SYNC)
BEFORE(int, fdatasync, (int fd), (fd), SYNC)
BEFORE(int, rename, (const char *old, const char *new), (old, new), NAME)
BEFORE(int, renameat2, (int in, const char *old, int to, const char *new, unsigned how), (in, old, to, new, how), NAME)
BEFORE(int, unlink, (const char *path), (path), NAME)
BEFORE(int, mkdir, (const char *path, mode_t mode), (path, mode), FOLDER)
BEFORE(int, ftruncate, (int fd, off_t size), (fd, size), CUT)
BEFORE(int, ftruncate64, (int fd, off64_t size), (fd, size), CUT)

ssize_t write(int fd, const void *data, size_t size)
{
    REAL(write);
    return fd > 2 && fails(WRITE) ? -1 : real(fd, data, size);
}

int posix_fallocate(int fd, off_t at, off_t size)
{
    REAL(posix_fallocate);
    return fails(WRITE) ? errno : real(fd, at, size);
}

/* A full disk opens what is there; a disk that fails opens nothing to be written. */
static int open_fails(int flags)
{
    return flags & (first == ENOSPC ? O_CREAT : O_CREAT | O_WRONLY | O_RDWR) && fails(OPEN);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    REAL(open);
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_fails(flags) ? -1 : real(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list more;
    REAL(open64);
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_fails(flags) ? -1 : real(path, flags, mode);
}
