/*
 * Text of unknown length into a buffer of fixed size, as snprintf does it, but piece by piece.
 */
#ifndef TIARA_BASE_TEXT_H
#define TIARA_BASE_TEXT_H

#include <stddef.h>

/* Begins with length 0. What fits is always terminated; length is what all pieces would need. */
struct tiara_text {
    char *text; /* borrowed; may be NULL when size is 0 */
    size_t size;
    size_t length;
};

/* Appends, printf-like. */
void tiara_text_add(struct tiara_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
