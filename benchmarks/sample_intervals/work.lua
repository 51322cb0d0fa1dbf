-- Work for the interpreter of Lua: sorting, strings, backtracking, tables, floating point.
local x = 42
local function r(n)
  x = (x * 1103515245 + 12345) % 2147483648
  return x // 65536 % n
end

local function queens(n)
  local column, found = {}, 0
  local function free(row)
    for j = 1, row - 1 do
      if column[j] == column[row] or math.abs(column[j] - column[row]) == row - j then return false end
    end
    return true
  end
  local function place(row)
    if row > n then
      found = found + 1
      return
    end
    for v = 1, n do
      column[row] = v
      if free(row) then place(row + 1) end
    end
  end
  place(1)
  return found
end

local function mandelbrot(size)
  local inside = 0
  for i = 0, size - 1 do
    for j = 0, size - 1 do
      local u, v = 0, 0
      for _ = 1, 60 do
        u, v = u * u - v * v + 2 * i / size - 1.5, 2 * u * v + 2 * j / size - 1
        if u * u + v * v > 4 then break end
        inside = inside + 1
      end
    end
  end
  return inside
end

for _ = 1, 2 do
  local t = {}
  for i = 1, 150000 do t[i] = r(1000000) end
  table.sort(t)
  local parts = {}
  for i = 1, 40000 do parts[i] = string.format("%d:%s", t[i], string.rep("ab", i % 5)) end
  local s, n = table.concat(parts, ","), 0
  for _, v in s:gmatch("(%d+):([ab]*)") do n = n + #v end
  local q, keys = queens(8), {}
  for i = 1, 300000 do keys["k" .. r(30000)] = i end
  print(n, q, mandelbrot(80), #s)
end
