/*
 * Resolves names that end in ".example" as the file named by REDLATCH_RESOLVER says: an address, "none", or "hang", which
 * lasts until the file says something else.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real)
        real = dlsym(RTLD_NEXT, "getaddrinfo");
    const char *end = node ? strrchr(node, '.') : NULL;
    const char *path = getenv("REDLATCH_RESOLVER");
    if (!end || strcmp(end, ".example") || !path)
        return real(node, service, hints, found);
    for (;;) {
        char said[64] = "hang";
        FILE *file = fopen(path, "r");
        if (file) {
            if (fscanf(file, "%63s", said) != 1)
                strcpy(said, "hang");
            fclose(file);
        }
        if (!strcmp(said, "none"))
            return EAI_NONAME;
        if (strcmp(said, "hang"))
            return real(said, service, hints, found);
        usleep(5000);
    }
}
