/*
 * Appending to a text.
 */
#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>

void tiara_text_add(struct tiara_text *text, const char *format, ...)
{
    size_t left = text->length < text->size ? text->size - text->length : 0;
    va_list args;
    int added;

    va_start(args, format);
    added = vsnprintf(left > 0 ? text->text + text->length : NULL, left, format, args);
    va_end(args);
    if (added > 0)
        text->length += (size_t)added;
}
