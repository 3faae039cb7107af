/* Preloaded into a process: writes down what it does to the files of one folder, in order, and lets
   what it does there fail.

   Each record is a struct head, a path, and the bytes written. Files are told apart by their inode,
   so that a record stays true when a file gets another name. Built by proof.conftest and read by proof.power. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct head {
    char what[16];
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

static int is_below(const char *path, const char *folder) {
    size_t length = folder ? strlen(folder) : 0;
    return folder && path && !strncmp(path, folder, length) &&
           (path[length] == '/' || !path[length]);
}

static int is_ours(const char *path) { return record_to >= 0 && is_below(path, folder); }

/* The path behind a descriptor; its length, 0 where there is none. */
static size_t path_of(int fd, char *path) {
    char link[64];
    strcpy(link, "/proc/self/fd/");
    char digits[16], *end = digits + sizeof digits;
    *--end = 0;
    int number = fd;
    do *--end = '0' + number % 10; while (number /= 10);
    strcat(link, end);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    return length > 0 ? length : 0;
}

/* A path that a call was given together with the descriptor of a folder. */
static const char *full(int at, const char *path, char *room) {
    if (!path || *path == '/' || at == AT_FDCWD) return path;
    size_t length = path_of(at, room);
    if (!length || length + strlen(path) + 2 > PATH_MAX) return NULL;
    room[length] = '/';
    strcpy(room + length + 1, path);
    return room;
}

static void put(const char *what, uint64_t file, int64_t at, const char *path, const void *data, size_t bytes) {
    size_t path_bytes = path ? strlen(path) : 0;
    struct head head = {"", file, at, path_bytes, bytes};
    strcpy(head.what, what);
    char *record = malloc(sizeof head + path_bytes + bytes);
    memcpy(record, &head, sizeof head);
    if (path) memcpy(record + sizeof head, path, path_bytes);
    if (bytes) memcpy(record + sizeof head + path_bytes, data, bytes);
    if (real_write(record_to, record, sizeof head + path_bytes + bytes) < 0) abort();
    free(record);
}

static char failing[PATH_MAX];
static int fail_from, fail_until, fail_with, changes;

/* Called by proof.test_write_errors: let changes in a folder fail, those from one number to another. */
void fail_changes(const char *where, int from, int until, int error) {
    strcpy(failing, where);
    fail_from = from, fail_until = until, fail_with = error, changes = 0;
}

int changes_tried(void) { return changes; }

static int fails(const char *path) {
    if (!*failing || !is_below(path, failing)) return 0;
    changes++;
    if (changes < fail_from || changes > fail_until) return 0;
    errno = fail_with;
    return 1;
}

static int fails_at(int fd) {
    char path[PATH_MAX];
    return *failing && path_of(fd, path) && fails(path);
}

static uint64_t inode_at(const char *path) {
    struct stat found;
    return lstat(path, &found) ? 0 : found.st_ino;
}

/* The inode behind a descriptor of a file in the folder, else 0. */
static uint64_t inode_of(int fd) {
    char path[PATH_MAX];
    struct stat found;
    if (record_to < 0 || fd == record_to || !path_of(fd, path)) return 0;
    return is_ours(path) && !fstat(fd, &found) ? found.st_ino : 0;
}

/* Where files are always large, a name with 64 is another name of the same. */
#define ALSO(other, name) extern __typeof(name) other __attribute__((alias(#name)));

int openat(int at, const char *path, int flags, ...) {
    int (*call)(int, const char *, int, ...) = real("openat");
    char room[PATH_MAX];
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    const char *whole = full(at, path, room);
    if (flags & (O_WRONLY | O_RDWR | O_CREAT) && fails(whole)) return -1;
    int was_there = !(flags & O_CREAT) || !is_ours(whole) || inode_at(whole);
    int fd = call(at, path, flags, mode);
    if (fd < 0 || !is_ours(whole)) return fd;
    if (!was_there) put("create", inode_of(fd), 0, whole, NULL, 0);
    else if (flags & O_TRUNC) put("truncate", inode_of(fd), 0, NULL, NULL, 0);
    return fd;
}
ALSO(openat64, openat)

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    return openat(AT_FDCWD, path, flags, mode);
}
ALSO(open64, open)

static ssize_t wrote(uint64_t file, const void *data, ssize_t count, int64_t at) {
    if (file && count > 0) put("write", file, at, NULL, data, count);
    return count;
}

ssize_t write(int fd, const void *data, size_t size) {
    if (fails_at(fd)) return -1;
    uint64_t file = inode_of(fd);
    int64_t at = file ? lseek(fd, 0, fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR) : 0;
    return wrote(file, data, real_write(fd, data, size), at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    ssize_t (*call)(int, const void *, size_t, off_t) = real("pwrite");
    if (fails_at(fd)) return -1;
    ssize_t count = call(fd, data, size, at);
    return wrote(inode_of(fd), data, count, at);
}
ALSO(pwrite64, pwrite)

int ftruncate(int fd, off_t size) {
    int (*call)(int, off_t) = real("ftruncate");
    if (fails_at(fd)) return -1;
    int failed = call(fd, size);
    uint64_t file = inode_of(fd);
    if (!failed && file) put("truncate", file, size, NULL, NULL, 0);
    return failed;
}
ALSO(ftruncate64, ftruncate)

/* What a sync of a file promises is its mode and time too; both are in the record. */
int fsync(int fd) {
    int (*call)(int) = real("fsync");
    if (fails_at(fd)) return -1;
    uint64_t file = inode_of(fd);
    int failed = call(fd);
    struct stat found;
    if (failed || !file || fstat(fd, &found)) return failed;
    int64_t written = found.st_mtim.tv_sec * 1000000000LL + found.st_mtim.tv_nsec;
    uint32_t mode = found.st_mode;
    put(S_ISDIR(found.st_mode) ? "sync folder" : "sync", file, written, NULL, &mode, sizeof mode);
    return failed;
}
ALSO(fdatasync, fsync)

int mkdirat(int at, const char *path, mode_t mode) {
    int (*call)(int, const char *, mode_t) = real("mkdirat");
    char room[PATH_MAX];
    const char *whole = full(at, path, room);
    int failed = fails(whole) ? -1 : call(at, path, mode);
    if (!failed && is_ours(whole)) put("make folder", inode_at(whole), mode, whole, NULL, 0);
    return failed;
}

int unlinkat(int at, const char *path, int flags) {
    int (*call)(int, const char *, int) = real("unlinkat");
    char room[PATH_MAX];
    const char *whole = full(at, path, room);
    int failed = fails(whole) ? -1 : call(at, path, flags);
    if (!failed && is_ours(whole)) put("remove", 0, 0, whole, NULL, 0);
    return failed;
}

/* A name for what has another, by a call that takes both and flags. */
static int named(const char *what, const char *name, int at, const char *from, int there, const char *to,
                 int flags) {
    int (*call)(int, const char *, int, const char *, int) = real(name);
    char room[PATH_MAX], other[PATH_MAX];
    const char *old = full(at, from, room), *new = full(there, to, other);
    int failed = fails(new) ? -1 : call(at, from, there, to, flags);
    if (!failed && is_ours(new)) put(what, inode_at(new), 0, old, new, strlen(new));
    return failed;
}

int renameat2(int at, const char *from, int there, const char *to, unsigned int flags) {
    return named(flags & RENAME_EXCHANGE ? "exchange" : "rename", "renameat2", at, from, there, to, flags);
}

int linkat(int at, const char *from, int there, const char *to, int flags) {
    return named("link", "linkat", at, from, there, to, flags);
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int renameat(int at, const char *from, int there, const char *to) {
    return renameat2(at, from, there, to, 0);
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int fchmod(int fd, mode_t mode) {
    int (*call)(int, mode_t) = real("fchmod");
    return fails_at(fd) ? -1 : call(fd, mode);
}

int fchown(int fd, uid_t user, gid_t group) {
    int (*call)(int, uid_t, gid_t) = real("fchown");
    return fails_at(fd) ? -1 : call(fd, user, group);
}

int futimens(int fd, const struct timespec times[2]) {
    int (*call)(int, const struct timespec *) = real("futimens");
    return fails_at(fd) ? -1 : call(fd, times);
}
