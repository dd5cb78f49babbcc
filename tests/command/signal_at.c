/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To be loaded before libc by a test of the command: sends the process a signal
 * at one exact call of the file system. ATTN_TEST_SIGNAL_AT is CALL:N:SIGNAL,
 * as in rename:2:15 for SIGTERM at the second rename. The call waits until the
 * signal was delivered, and then is made. A second thread is there from the
 * beginning and blocks nothing, as a worker of OpenMP does: a signal that the
 * first thread holds back reaches it. ATTN_TEST_CALLS names a file to which
 * the numbers of the calls go at the end.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const calls[] = {"write", "fsync", "rename", "unlink"};
enum call { WRITE, FSYNC, RENAME, UNLINK, CALLS };
static int made[CALLS];

static void *idle(void *unused)
{
    for (;;)
        pause();
    return unused;
}

__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, idle, NULL) != 0)
        _exit(99);
}

__attribute__((destructor)) static void report(void)
{
    const char *path = getenv("ATTN_TEST_CALLS");
    FILE *file = path != NULL ? fopen(path, "we") : NULL;
    for (int i = 0; file != NULL && i < CALLS; i++)
        fprintf(file, "%s %d\n", calls[i], made[i]);
    if (file != NULL)
        fclose(file);
}

static void count(enum call call)
{
    char name[16];
    int number = 0, signal = 0;
    const char *at = getenv("ATTN_TEST_SIGNAL_AT");
    made[call]++;
    if (at == NULL || sscanf(at, "%15[^:]:%d:%d", name, &number, &signal) != 3)
        return;
    if (strcmp(name, calls[call]) == 0 && made[call] == number) {
        kill(getpid(), signal);
        /* Another thread may take it. */
        usleep(20000);
    }
}

ssize_t write(int fd, const void *data, size_t size)
{
    ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    count(WRITE);
    return next(fd, data, size);
}

int fsync(int fd)
{
    int (*next)(int) = dlsym(RTLD_NEXT, "fsync");
    count(FSYNC);
    return next(fd);
}

int rename(const char *from, const char *to)
{
    int (*next)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    count(RENAME);
    return next(from, to);
}

int unlink(const char *path)
{
    int (*next)(const char *) = dlsym(RTLD_NEXT, "unlink");
    count(UNLINK);
    return next(path);
}
