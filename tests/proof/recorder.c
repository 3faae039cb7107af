/* Preloaded into a process: writes down what it does to the files of one folder, in order.

   Each record is a struct head, a path, and the bytes written. Files are told apart by their inode,
   so that a record stays true when a file gets another name. Built and read by proof.recording. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct head {
    char what;
    uint64_t file;
    int64_t at;
    uint32_t path_bytes;
    uint32_t data_bytes;
} __attribute__((packed));

static int record_to = -1;
static const char *folder;
static int (*real_open)(const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    real_open = real("open");
    real_write = real("write");
    folder = getenv("RECORDED_FOLDER");
    const char *path = getenv("RECORD_TO");
    if (folder && path) record_to = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_ours(const char *path) {
    size_t length = folder ? strlen(folder) : 0;
    return record_to >= 0 && path && !strncmp(path, folder, length) &&
           (path[length] == '/' || !path[length]);
}

static void put(char what, uint64_t file, int64_t at, const char *path, const void *data, size_t bytes) {
    size_t path_bytes = path ? strlen(path) : 0;
    struct head head = {what, file, at, path_bytes, bytes};
    char *record = malloc(sizeof head + path_bytes + bytes);
    memcpy(record, &head, sizeof head);
    if (path) memcpy(record + sizeof head, path, path_bytes);
    if (bytes) memcpy(record + sizeof head + path_bytes, data, bytes);
    if (real_write(record_to, record, sizeof head + path_bytes + bytes) < 0) abort();
    free(record);
}

static uint64_t inode_at(const char *path) {
    struct stat found;
    return lstat(path, &found) ? 0 : found.st_ino;
}

/* The inode behind a descriptor of a file in the folder, else 0. */
static uint64_t inode_of(int fd) {
    char link[64], path[4096];
    if (record_to < 0 || fd == record_to) return 0;
    strcpy(link, "/proc/self/fd/");
    char digits[16], *end = digits + sizeof digits;
    *--end = 0;
    int number = fd;
    do *--end = '0' + number % 10; while (number /= 10);
    strcat(link, end);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    struct stat found;
    if (!is_ours(path) || fstat(fd, &found)) return 0;
    return found.st_ino;
}

static int opened(int fd, const char *path, int flags, int was_there) {
    if (fd < 0 || !is_ours(path)) return fd;
    if (!was_there) put('c', inode_of(fd), 0, path, NULL, 0);
    else if (flags & O_TRUNC) put('t', inode_of(fd), 0, NULL, NULL, 0);
    return fd;
}

#define OPEN(name)                                                             \
    int name(const char *path, int flags, ...) {                               \
        va_list rest; va_start(rest, flags);                                   \
        int mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, int) : 0;    \
        va_end(rest);                                                          \
        int was_there = !(flags & O_CREAT) || !is_ours(path) || inode_at(path);\
        int (*call)(const char *, int, ...) = real(#name);                     \
        return opened(call(path, flags, mode), path, flags, was_there);        \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                           \
    int name(int at, const char *path, int flags, ...) {                       \
        va_list rest; va_start(rest, flags);                                   \
        int mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, int) : 0;    \
        va_end(rest);                                                          \
        int was_there = !(flags & O_CREAT) || !is_ours(path) || inode_at(path);\
        int (*call)(int, const char *, int, ...) = real(#name);                \
        return opened(call(at, path, flags, mode), path, flags, was_there);    \
    }
OPENAT(openat)
OPENAT(openat64)

static void wrote(int fd, uint64_t file, const void *data, ssize_t count, int64_t at) {
    (void)fd;
    if (file && count > 0) put('w', file, at, NULL, data, count);
}

ssize_t write(int fd, const void *data, size_t size) {
    uint64_t file = inode_of(fd);
    int64_t at = 0;
    if (file) at = lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR);
    ssize_t count = real_write(fd, data, size);
    wrote(fd, file, data, count, at);
    return count;
}

#define PWRITE(name)                                                           \
    ssize_t name(int fd, const void *data, size_t size, off_t at) {            \
        ssize_t (*call)(int, const void *, size_t, off_t) = real(#name);       \
        ssize_t count = call(fd, data, size, at);                              \
        wrote(fd, inode_of(fd), data, count, at);                              \
        return count;                                                          \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define TRUNCATE(name)                                                         \
    int name(int fd, off_t size) {                                             \
        int (*call)(int, off_t) = real(#name);                                 \
        int failed = call(fd, size);                                           \
        uint64_t file = inode_of(fd);                                          \
        if (!failed && file) put('t', file, size, NULL, NULL, 0);              \
        return failed;                                                         \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define SYNC(name)                                                             \
    int name(int fd) {                                                         \
        int (*call)(int) = real(#name);                                        \
        struct stat found;                                                     \
        uint64_t file = inode_of(fd);                                          \
        int failed = call(fd);                                                 \
        if (!failed && file)                                                   \
            put(!fstat(fd, &found) && S_ISDIR(found.st_mode) ? 'd' : 's', file, 0, NULL, NULL, 0); \
        return failed;                                                         \
    }
SYNC(fsync)
SYNC(fdatasync)

static void unlinked(int failed, const char *path) {
    if (!failed && is_ours(path)) put('u', 0, 0, path, NULL, 0);
}

int unlink(const char *path) {
    int (*call)(const char *) = real("unlink");
    int failed = call(path);
    unlinked(failed, path);
    return failed;
}

int unlinkat(int at, const char *path, int flags) {
    int (*call)(int, const char *, int) = real("unlinkat");
    int failed = call(at, path, flags);
    unlinked(failed, path);
    return failed;
}

static void named(char what, int failed, const char *from, const char *to) {
    if (!failed && is_ours(to)) put(what, inode_at(to), 0, from, to, strlen(to));
}

int rename(const char *from, const char *to) {
    int (*call)(const char *, const char *) = real("rename");
    int failed = call(from, to);
    named('r', failed, from, to);
    return failed;
}

int renameat(int at, const char *from, int there, const char *to) {
    int (*call)(int, const char *, int, const char *) = real("renameat");
    int failed = call(at, from, there, to);
    named('r', failed, from, to);
    return failed;
}

int link(const char *from, const char *to) {
    int (*call)(const char *, const char *) = real("link");
    int failed = call(from, to);
    named('l', failed, from, to);
    return failed;
}

int linkat(int at, const char *from, int there, const char *to, int flags) {
    int (*call)(int, const char *, int, const char *, int) = real("linkat");
    int failed = call(at, from, there, to, flags);
    named('l', failed, from, to);
    return failed;
}
