# Work for the interpreter of Perl: hashes, sorting, patterns, matrices, recursion.
use strict;
my ($x, $sum) = (12345, 0);
sub r { $x = ($x * 1103515245 + 12345) & 0x7fffffff; return $x >> 8; }
my $fibonacci;
$fibonacci = sub { my $n = shift; $n < 2 ? $n : $fibonacci->($n - 1) + $fibonacci->($n - 2) };
for my $round (1 .. 2) {
  my %h;
  for (1 .. 120000) { my $k = "key" . (r() % 20000); $h{$k}++; }
  my @k = sort { $h{$b} <=> $h{$a} || $a cmp $b } keys %h;
  my $t = join(" ", map { "$_=$h{$_}" } @k);
  my $n = 0;
  while ($t =~ /(\w+?)(\d+)=([1-9])\b/g) { $n += $2 * $3; }
  (my $u = $t) =~ s/key(\d)/k$1x/g;
  my %l;
  $l{length $_}++ for split / /, $u;
  my @m;
  for my $i (0 .. 89) { for my $j (0 .. 89) { $m[$i][$j] = r() % 10; } }
  for my $i (0 .. 89) {
    for my $j (0 .. 89) { my $s = 0; $s += $m[$i][$_] * $m[$_][$j] for 0 .. 89; $sum += $s; }
  }
  $sum += $fibonacci->(21);
  print "$n $sum ", scalar(keys %l), "\n";
}
