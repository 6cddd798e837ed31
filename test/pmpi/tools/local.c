/*
 * A program that is linked with no MPI and opens an object that is, as interpreters do: local
 * OBJECT [WORD]... runs p_job of it.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *object = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*job)(int, char **) = object ? (int (*)(int, char **))dlsym(object, "p_job") : NULL;

    if (!job) {
        fprintf(stderr, "local: %s\n", argc > 1 ? dlerror() : "which object?");
        return 1;
    }
    return job(argc - 1, argv + 1);
}
