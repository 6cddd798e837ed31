/*
 * Errors inside the library.
 *
 * One enum; 0 is success; "not finished yet" is never an error. The function that first detects an
 * error logs it once with the exact cause and values (log.h); callers pass the code on silently.
 * lib/call turns a code into an MPI error class and raises it through the communicator's handler.
 */
#ifndef TIARA_BASE_ERR_H
#define TIARA_BASE_ERR_H

enum tiara_err {
    TIARA_OK = 0,
    TIARA_ERR_ARG, /* a value from outside (argument, variable, text) is not acceptable */
    TIARA_ERR_NOMEM, /* private memory ran out */
    TIARA_ERR_NOSPACE, /* no room for shared memory, or the budget is spent */
    TIARA_ERR_UNSUPPORTED, /* this machine, MPI or plan cannot do it; another way exists */
    TIARA_ERR_PLAN, /* a plan breaks a rule; the report says which and where */
    TIARA_ERR_MISMATCH, /* ranks called with different arguments */
    TIARA_ERR_PEER, /* a peer died or stopped */
    TIARA_ERR_TIMEOUT, /* the watchdog's limit passed */
    TIARA_ERR_MPI, /* the MPI below failed; its text is in the log */
    TIARA_ERR_SYS, /* a system call failed; errno's text is in the log */
    TIARA_NERR
};

#define TIARA_MUST_USE __attribute__((warn_unused_result))

/*
 * For errors of the programmer, never for what the outside can cause: on in debug builds
 * (--enable-debug), where it names the place and aborts; otherwise nothing.
 */
#ifdef TIARA_ASSERT
#define tiara_assert(condition)                                                                    \
    ((condition) ? (void)0 : tiara_assert_failed(#condition, __FILE__, __LINE__))
#else
#define tiara_assert(condition) ((void)sizeof(condition))
#endif
void tiara_assert_failed(const char *condition, const char *file, int line)
    __attribute__((noreturn));

/* A short lower-case phrase for @err, static storage; never NULL. */
const char *tiara_err_text(enum tiara_err err);

/* The first error of two: keeps @first when it is one. For clean-up paths that go on. */
static inline enum tiara_err tiara_err_first(enum tiara_err first, enum tiara_err next)
{
    return first != TIARA_OK ? first : next;
}

#endif
