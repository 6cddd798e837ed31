/*
 * Numbers in options. Strict: the whole text must be a number, in range; "12x" and "" are errors,
 * never 12 and 0.
 */
#include "bench.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

bool bench_complain(struct bench_why *why, const char *format, ...)
{
    if (why->text[0] != '\0')
        return false;
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return false;
}

/* How far a size suffix shifts; -1 when it is none. */
static int suffix_shift(const char *suffix)
{
    static const char letters[] = "kKmMgG";
    if (suffix[0] == '\0')
        return 0;
    const char *at = strchr(letters, suffix[0]);
    return at != NULL && suffix[1] == '\0' ? 10 * ((int)(at - letters) / 2 + 1) : -1;
}

bool bench_parse_bytes(const char *text, size_t *bytes_out)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    int shift = suffix_shift(end);
    if (errno != 0 || shift < 0 || value > (SIZE_MAX >> 1) >> shift)
        return false;
    *bytes_out = (size_t)value << shift;
    return true;
}

bool bench_parse_range(const char *text, size_t *min_out, size_t *max_out)
{
    const char *colon = strchr(text, ':');
    if (colon == NULL)
        return bench_parse_bytes(text, max_out);
    char left[32];
    size_t len = (size_t)(colon - text);
    if (len >= sizeof left || (len == 0 && colon[1] == '\0'))
        return false;
    memcpy(left, text, len);
    left[len] = '\0';
    if (len > 0 && !bench_parse_bytes(left, min_out))
        return false;
    return colon[1] == '\0' || bench_parse_bytes(colon + 1, max_out);
}

bool bench_parse_long(const char *text, long min, long max, long *value_out)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < min || value > max)
        return false;
    *value_out = value;
    return true;
}

bool bench_parse_double(const char *text, double min, double max, double *value_out)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !(value >= min && value <= max))
        return false;
    *value_out = value;
    return true;
}

size_t bench_parse_sizes(const char *text, size_t *sizes, size_t max)
{
    size_t n = 0;
    for (;;) {
        char word[32];
        size_t len = strcspn(text, ",");
        if (len >= sizeof word || n == max)
            return 0;
        memcpy(word, text, len);
        word[len] = '\0';
        if (!bench_parse_bytes(word, &sizes[n]) || sizes[n] == 0)
            return 0;
        n++;
        if (text[len] == '\0')
            return n;
        text += len + 1;
    }
}

size_t bench_sizes_fill(size_t min, size_t max, double factor, size_t *sizes)
{
    size_t n = 0;
    double exact = min > 0 ? (double)min : 1.0;
    while (n < BENCH_MAX_SIZES && exact <= (double)max) {
        size_t size = (size_t)llround(exact);
        if (n == 0 || size > sizes[n - 1])
            sizes[n++] = size;
        exact *= factor;
    }
    return n;
}
