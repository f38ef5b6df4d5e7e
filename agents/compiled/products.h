/* Products of small matrices.

Invariant: a number of a product is one sum in one order, whatever the other rows and columns are.
*/

#pragma once

#include "vectors.h"

enum { PANEL = WIDTH * ACROSS, LINE = 16 };
/* Columns of a tile; numbers that the processor fetches at once. */

/* C[i, j] (+)= sum over p of A[i, p] B[p, j], where C has M rows and N vectors. */
INLINE void tile(const int M, const int N, const int add, count inner, const float *a, count a_i, count a_p,
                 const float *b, count b_p, float *c, count c_i) {
    if (!add) /* what is only written would be waited for at the end */
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N * WIDTH; j += LINE) __builtin_prefetch(c + i * c_i + j, 1);
    vec sum[DOWN][ACROSS];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) sum[i][j] = add ? load(c + i * c_i + j * WIDTH) : all(0);
#pragma GCC unroll 4
    for (count p = 0; p < inner; p++, a += a_p, b += b_p) {
        vec row[ACROSS];
        for (int j = 0; j < N; j++) row[j] = load(b + j * WIDTH);
        for (int i = 0; i < M; i++) {
            vec x = all(a[i * a_i]);
            for (int j = 0; j < N; j++) sum[i][j] += x * row[j];
        }
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) store(c + i * c_i + j * WIDTH, sum[i][j]);
}

#define TILE(M, N) \
    case M * 8 + N: tile(M, N, add, inner, a, a_i, a_p, b, b_p, c, c_i); break;
#if defined(__AVX__) && !defined(__AVX512F__)
#define TILES(M) TILE(M, 1) TILE(M, 2)
#else
#define TILES(M) TILE(M, 1) TILE(M, 2) TILE(M, 3) TILE(M, 4)
#endif

/* Sizes that the compiler knows keep the sums of a tile in registers. */
#define TILED(NAME, ADD)                                                                                               \
    static void NAME(count m, count n, count inner, const float *a, count a_i, count a_p, const float *b, count b_p,   \
                     float *c, count c_i) {                                                                            \
        const int add = ADD;                                                                                           \
        switch (m * 8 + n) { TILES(1) TILES(2) TILES(3) TILES(4) TILES(5) TILES(6) }                                   \
    }
TILED(set, 0)
TILED(added, 1)

/* Rows of a tile where m rows are cut into as few tiles as there can be, about as tall as each other. */
INLINE count tall(count m) {
    count tiles = (m + DOWN - 1) / DOWN;
    return tiles ? (m + tiles - 1) / tiles : 0;
}

/* C (+)= A B with n columns, rounded up to whole vectors: what is beyond them is overwritten with anything. */
static void product(int add, count m, count n, count inner, const float *a, count a_i, count a_p, const float *b,
                    count b_p, float *c, count c_i) {
    count vectors = whole(n) / WIDTH;
    for (count j = 0; j < vectors; j += ACROSS)
        for (count i = 0; i < m; i += DOWN)
            (add ? added : set)(least(DOWN, m - i), least(ACROSS, vectors - j), inner, a + i * a_i, a_i, a_p,
                                b + j * WIDTH, b_p, c + i * c_i + j * WIDTH, c_i);
}
