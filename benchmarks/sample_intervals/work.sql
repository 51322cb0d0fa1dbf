CREATE TABLE item(id INTEGER PRIMARY KEY, grp INTEGER, price REAL, name TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
INSERT INTO item SELECT i, (i * 7919) % 997, (i * 104729 % 10007) / 7.0, 'name' || ((i * 31337) % 50021) FROM n;
CREATE INDEX by_name ON item(name);
CREATE TABLE sale(item INTEGER, day INTEGER, n INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
INSERT INTO sale SELECT (i * 48271) % 150000 + 1, i % 365, i % 5 + 1 FROM n;
SELECT grp, COUNT(*), SUM(price), MAX(name) FROM item GROUP BY grp ORDER BY 3 DESC LIMIT 3;
SELECT day, SUM(price * n) FROM sale JOIN item ON item.id = sale.item GROUP BY day ORDER BY 2 LIMIT 3;
SELECT COUNT(*) FROM item WHERE name LIKE '%99%' OR name LIKE '%123';
SELECT a.name, COUNT(*) FROM item a JOIN item b ON a.name = b.name AND a.id < b.id GROUP BY a.name ORDER BY 2 DESC, 1 LIMIT 3;
UPDATE item SET price = price * 1.1 WHERE grp % 3 = 0;
DELETE FROM item WHERE id % 11 = 0;
SELECT COUNT(DISTINCT name), AVG(LENGTH(name)), SUM(price) FROM item;
