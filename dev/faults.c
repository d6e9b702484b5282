/* Counts the system calls that change files below a folder, and lets one of them fail or kill the process (LD_PRELOAD).

   FAULT_ROOT   folder whose files are watched; nothing is watched while it is unset
   FAULT_LOG    log file, to which each call appends a line
   FAULT_CALL   number of the call that fails, from 1 on; 0 for none
   FAULT_ERRNO  its error number; 0 kills the process instead
   FAULT_STICKY "1" if all later calls also fail, except those that free space */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_int calls;
static atomic_char watched[1 << 16]; /* file descriptors opened for writing below the root */

static int below(int folder, const char *path) {
    const char *root = getenv("FAULT_ROOT");
    char full[2 * PATH_MAX] = "", link[64];
    if (!root || !path) return 0;
    if (path[0] != '/' && folder == AT_FDCWD) { if (syscall(SYS_getcwd, full, PATH_MAX) < 0) return 0; }
    else if (path[0] != '/') {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        if (readlink(link, full, PATH_MAX - 1) < 0) return 0;
    }
    strncat(full, "/", 2); strncat(full, path, PATH_MAX - 2);
    char *start = full[1] == '/' ? full + 1 : full;
    size_t n = strlen(root);
    return !strncmp(start, root, n) && (start[n] == '/' || !start[n]);
}

/* Returns whether the call must fail, with errno set. */
static int fails(const char *name, const char *path, int frees) {
    int saved = errno, number = ++calls, fatal = atoi(getenv("FAULT_CALL") ?: "0"), error = atoi(getenv("FAULT_ERRNO") ?: "0");
    char line[PATH_MAX + 64];
    const char *log = getenv("FAULT_LOG");
    int n = snprintf(line, sizeof line, "%s %s\n", name, path), file = log ? syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (file >= 0) { syscall(SYS_write, file, line, n); syscall(SYS_close, file); }
    errno = saved;
    if (!fatal || number < fatal || (number > fatal && (atoi(getenv("FAULT_STICKY") ?: "0") == 0 || frees))) return 0;
    if (!error) { syscall(SYS_kill, 0, SIGKILL); }
    errno = error;
    return 1;
}

#define REAL(name) ((__typeof__(&name)) dlsym(RTLD_NEXT, #name))
#define PATH_CALL(name, type, arguments, values, folder, path, frees) \
    type name arguments { return below(folder, path) && fails(#name, path, frees) ? (type) -1 : REAL(name) values; }
#define FD_CALL(name, type, arguments, values) \
    type name arguments { return fd >= 0 && fd < 1 << 16 && watched[fd] && fails(#name, "", 0) ? (type) -1 : REAL(name) values; }
#define OPEN(name, arguments, before, folder) \
    int name arguments { \
        va_list more; va_start(more, flags); mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; va_end(more); \
        int writes = flags & (O_WRONLY | O_RDWR | O_CREAT) && below(folder, path); \
        if (writes && fails(#name, path, 0)) return -1; \
        int fd = REAL(name)(before, flags, mode); \
        if (fd >= 0 && fd < 1 << 16) watched[fd] = writes != 0; \
        return fd; \
    }
#define COMMA ,
OPEN(open, (const char *path, int flags, ...), path, AT_FDCWD)
OPEN(open64, (const char *path, int flags, ...), path, AT_FDCWD)
OPEN(openat, (int folder, const char *path, int flags, ...), folder COMMA path, folder)
OPEN(openat64, (int folder, const char *path, int flags, ...), folder COMMA path, folder)
FD_CALL(write, ssize_t, (int fd, const void *data, size_t n), (fd, data, n))
FD_CALL(writev, ssize_t, (int fd, const struct iovec *data, int n), (fd, data, n))
FD_CALL(pwrite, ssize_t, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at))
FD_CALL(pwrite64, ssize_t, (int fd, const void *data, size_t n, off64_t at), (fd, data, n, at))
FD_CALL(fsync, int, (int fd), (fd))
FD_CALL(ftruncate, int, (int fd, off_t n), (fd, n))
FD_CALL(ftruncate64, int, (int fd, off64_t n), (fd, n))
PATH_CALL(rename, int, (const char *old, const char *path), (old, path), AT_FDCWD, path, 0)
PATH_CALL(renameat, int, (int a, const char *old, int folder, const char *path), (a, old, folder, path), folder, path, 0)
PATH_CALL(mkdir, int, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path, 0)
PATH_CALL(unlink, int, (const char *path), (path), AT_FDCWD, path, 1)
PATH_CALL(unlinkat, int, (int folder, const char *path, int flags), (folder, path, flags), folder, path, 1)
PATH_CALL(rmdir, int, (const char *path), (path), AT_FDCWD, path, 1)

int posix_fallocate(int fd, off_t at, off_t n) { /* returns its error number */
    return fd >= 0 && fd < 1 << 16 && watched[fd] && fails("posix_fallocate", "", 0) ? errno : REAL(posix_fallocate)(fd, at, n);
}
int posix_fallocate64(int fd, off64_t at, off64_t n) {
    return fd >= 0 && fd < 1 << 16 && watched[fd] && fails("posix_fallocate64", "", 0) ? errno : REAL(posix_fallocate64)(fd, at, n);
}
int close(int fd) { /* also closes the file if it fails, as the kernel does */
    int was = fd >= 0 && fd < 1 << 16 && watched[fd], done;
    if (was) watched[fd] = 0;
    done = REAL(close)(fd);
    return was && fails("close", "", 1) ? -1 : done;
}
void *mmap(void *start, size_t n, int access, int flags, int fd, off_t at) {
    int writes = fd >= 0 && fd < 1 << 16 && watched[fd];
    return writes && fails("mmap", "", 0) ? MAP_FAILED : REAL(mmap)(start, n, access, flags, fd, at);
}
void *mmap64(void *start, size_t n, int access, int flags, int fd, off64_t at) {
    int writes = fd >= 0 && fd < 1 << 16 && watched[fd];
    return writes && fails("mmap", "", 0) ? MAP_FAILED : REAL(mmap64)(start, n, access, flags, fd, at);
}
