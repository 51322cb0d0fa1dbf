# Work for gawk: associative arrays, splitting, patterns, a grid, formatting.
BEGIN {
  x = 7
  for (round = 0; round < 2; round++) {
    delete h
    for (i = 0; i < 250000; i++) {
      x = (x * 69069 + 1) % 4294967296
      h["w" int(x / 65536) % 5000]++
    }
    s = ""
    for (i = 0; i < 5000; i++) if (("w" i) in h) s = s " w" i ":" h["w" i]
    n = split(s, f, " ")
    for (k = 0; k < 6; k++) for (i = 1; i <= n; i++) {
      split(f[i], g, ":")
      t += g[2]
      if (f[i] ~ /^w[0-9]*7:[45]/) c++
      sub(/w/, "v" k, f[i])
    }
    for (i = 1; i < 180; i++) for (j = 1; j < 180; j++) m[i, j] = (i * j) % 17
    for (i = 1; i < 179; i++) for (j = 1; j < 179; j++) q += m[i, j + 1] * m[i + 1, j] - m[i - 1, j]
    for (i = 0; i < 60000; i++) u += length(sprintf("%08.3f|%x", i / 7, i))
    print n, t, c, q, u
  }
}
