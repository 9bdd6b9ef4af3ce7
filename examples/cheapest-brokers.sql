-- QUERY 1 of Liu and Rundensteiner (2007), with the window that a stream needs: the offers of three banks for one currency
-- joined, then the lowest price that each broker has found. Its sources and sink are in cheapest-brokers.toml.
SELECT bank1.broker, min(bank1.price) AS cheapest, count(*) AS matches
FROM bank1, bank2, bank3
WHERE bank1.currency = bank2.currency AND bank2.currency = bank3.currency
  AND bank1.offer = bank2.offer AND bank2.offer = bank3.offer
  AND bank2.ts BETWEEN bank1.ts - INTERVAL 60 SECONDS AND bank1.ts + INTERVAL 60 SECONDS
  AND bank3.ts BETWEEN bank1.ts - INTERVAL 60 SECONDS AND bank1.ts + INTERVAL 60 SECONDS
  AND bank3.ts BETWEEN bank2.ts - INTERVAL 60 SECONDS AND bank2.ts + INTERVAL 60 SECONDS
GROUP BY bank1.broker
